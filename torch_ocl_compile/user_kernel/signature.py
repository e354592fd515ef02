# torch_ocl_compile/user_kernel/signature.py: reads a kernel's signature, and gives its pointers an offset.
"""Tensors share buffers, so a tensor is a buffer and an offset in bytes. The user's kernel takes plain pointers. Each
pointer parameter of the text is therefore replaced by two parameters, and the first statement of the body computes the
pointer. No line is added, so that the compiler's messages show the lines of the user's text.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torch_ocl_compile.errors import ConfigError

# OpenCL's type -> (struct's format, bytes, dtypes that its pointers may have).
SCALARS: dict[str, tuple[str, int, tuple[torch.dtype, ...]]] = {
    "char": ("b", 1, (torch.int8, torch.bool)),
    "uchar": ("B", 1, (torch.uint8, torch.bool)),
    "short": ("h", 2, (torch.int16,)),
    "ushort": ("H", 2, (torch.uint16, torch.bfloat16)),
    "int": ("i", 4, (torch.int32,)),
    "uint": ("I", 4, (torch.uint32,)),
    "long": ("q", 8, (torch.int64,)),
    "ulong": ("Q", 8, (torch.uint64,)),
    "half": ("e", 2, (torch.float16,)),
    "float": ("f", 4, (torch.float32,)),
    "double": ("d", 8, (torch.float64,)),
}
# The type of a macro whose value is a dtype.
OPENCL_TYPES = {dtype: name for name, (_, _, dtypes) in SCALARS.items() for dtype in dtypes}
OPENCL_TYPES[torch.bool] = "uchar"
_QUALIFIERS = {"const", "restrict", "__restrict", "__restrict__", "volatile"}
_SPACES = {"global": "global", "local": "local", "constant": "constant", "private": "private"}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel. `space`: "global", "local", or "" for a number."""

    name: str
    text: str  # As in the source.
    space: str
    type: str  # Without qualifiers, "float4" or a macro's name.
    is_const: bool

    @property
    def written(self) -> bool:
        return self.space == "global" and not self.is_const


@dataclass(frozen=True)
class Signature:
    kernel: str
    parameters: tuple[Parameter, ...]
    source: str  # The user's text.
    parameters_at: tuple[int, int]  # Where the list of parameters is in it, without the brackets.
    body_at: int  # Behind the opening brace.

    def text(self) -> str:
        """Returns the program with a pair (buffer, offset) for each pointer to global memory."""
        begin, end = self.parameters_at
        listed, pointers = [], []
        for p in self.parameters:
            if p.space != "global":
                listed.append(p.text)
                continue
            const = "const " if p.is_const else ""
            listed.append(f"__global {const}uchar* {p.name}_buffer, ulong {p.name}_offset")
            pointers.append(f" {p.text} = (__global {const}{p.type}*)({p.name}_buffer + {p.name}_offset);")
        # Line breaks within the list stay, so that later lines keep their numbers.
        lines = "\n" * self.source[begin:end].count("\n")
        head = self.source[:begin] + ", ".join(" ".join(text.split()) for text in listed) + lines
        inserted = "".join(" ".join(line.split()) + " " for line in pointers)
        return head + self.source[end : self.body_at] + " " + inserted + self.source[self.body_at :]


def parse(source: str, kernel: str, op: str) -> Signature:
    """Finds `kernel` in an OpenCL C text. ConfigError if it is not there or has parameters that an op cannot pass."""
    plain = _without_comments(source)
    found = {
        m[1]: m
        for m in re.finditer(r"\b(?:__)?kernel\b[^;{}]*?\bvoid\s+(?:__attribute__\s*\(\(.*?\)\)\s*)*(\w+)\s*\(", plain)
    }
    if not kernel:
        own = op.rpartition("::")[2]
        kernel = own if own in found or len(found) != 1 else next(iter(found))
    if kernel not in found:
        listed = ", ".join(found) or "none"
        raise ConfigError(
            f"{op}: the source has no kernel {kernel!r}, its kernels are: {listed}.\n  do: pass kernel=..."
        )
    begin = found[kernel].end()
    end, depth = begin, 1
    while depth:
        if end >= len(plain):
            raise ConfigError(f"{op}: the brackets of kernel {kernel} do not close.")
        depth += {"(": 1, ")": -1}.get(plain[end], 0)
        end += 1
    end -= 1
    brace = plain.find("{", end)
    if brace < 0:
        raise ConfigError(f"{op}: kernel {kernel} has no body.")
    texts = [text for text in plain[begin:end].split(",") if text.strip() not in ("", "void")]
    parameters = tuple(_parameter(text, kernel, op) for text in texts)
    return Signature(kernel, parameters, source, (begin, end), brace + 1)


def _without_comments(source: str) -> str:
    """Blanks comments, strings and preprocessor lines. Positions stay."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*'
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), source, flags=re.S | re.M)


def _parameter(text: str, kernel: str, op: str) -> Parameter:
    words = re.findall(r"\w+|\*|\S", text)
    where = f"{op}: parameter `{' '.join(text.split())}` of kernel {kernel}"
    if not words or not re.fullmatch(r"[A-Za-z_]\w*", words[-1]) or any(w in "[]()" for w in words):
        raise ConfigError(f"{where} is not understood.\n  do: write it as `__global const float* name` or `int name`.")
    name, stars = words[-1], words.count("*")
    spaces = [_SPACES[w.strip("_")] for w in words if w.strip("_") in _SPACES]
    space = spaces[0] if spaces else ""
    inner = [w for w in words[:-1] if w not in _QUALIFIERS and w != "*" and w.strip("_") not in _SPACES]
    type_name = _plain_type(inner)
    before_star = words[: words.index("*")] if stars else words
    if stars > 1 or (stars and space not in ("global", "local")):
        raise ConfigError(f"{where} cannot be passed: a pointer must be __global or __local, and not to a pointer.")
    if type_name.startswith(("image", "sampler")) or type_name in ("bool", "size_t", "") or len(type_name.split()) > 1:
        raise ConfigError(f"{where} cannot be passed: an op passes tensors, numbers and __local memory.")
    return Parameter(name, text, space if stars else "", type_name, "const" in before_star)


def _plain_type(words: list[str]) -> str:
    if words and words[0] in ("unsigned", "signed"):
        rest = words[1] if len(words) > 1 else "int"
        return ("u" if words[0] == "unsigned" else "") + rest
    return " ".join(words)


def element(type_name: str, macros: Mapping[str, str], where: str) -> tuple[str, int]:
    """Returns (scalar type, vector width) of a type: "float4" -> ("float", 4). Macros are replaced. ConfigError if it
    is unknown.
    """
    seen = type_name
    for _ in range(8):
        if seen not in macros:
            break
        seen = macros[seen]
    match = re.fullmatch(r"([a-z]+?)(2|3|4|8|16)?", seen)
    if match is None or match[1] not in SCALARS:
        raise ConfigError(
            f"{where} has the type {type_name}, which is none of OpenCL's.\n"
            f"  do: use one of {', '.join(SCALARS)}, a vector of it, or a macro that `defines` sets to one."
        )
    return match[1], int(match[2] or 1)


def number_bytes(value: Any, type_name: str, where: str) -> bytes:
    """Returns a number as bytes, as the kernel reads it. ConfigError if it does not fit the type."""
    form = SCALARS[type_name][0]
    try:
        return struct.pack(f"<{form}", float(value) if form in "efd" else int(value))
    except (struct.error, OverflowError, ValueError, TypeError) as error:
        raise ConfigError(f"{where} = {value!r} does not fit the type {type_name} of the kernel: {error}.") from error


def macros_of(source: str) -> dict[str, str]:
    """Returns the types that the text itself names: `#define T float`, `typedef float T;`."""
    named = dict(re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\w+)[ \t]*$", source, re.M))
    named.update({new: old for old, new in re.findall(r"\btypedef\s+(\w+)\s+(\w+)\s*;", source)})
    return named

# tests/fuzz/script.py: prints a program as a Python script that needs only torch and torch_ocl_compile.
from __future__ import annotations

import inspect
from typing import Any

from tests.fuzz import execute, values
from tests.fuzz.program import COMPILE, Program

MAKERS = {"make": values.make, "distinct": values.distinct, "special": values.special, "limits": values.limits}

HEAD = '''"""{title}
{how}"""
import math
import sys

import torch
import torch.nn.functional as F
from torch import cond
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.utils.checkpoint import checkpoint

import torch_ocl_compile

ocl = sys.argv[1] if len(sys.argv) > 1 else "ocl:0"
'''

TAIL = '''

def call(run, device, n, k):
    """Arguments, results and gradients of a call."""
    given = arguments(device, n, k)
    given = given if run is f or not {weights} else run.given(given)
{mark}    with {context}:
        results = list(run(*given))
    {gradients}
    return [*given, *results], found


def contents(x):
    """The whole memory behind a tensor."""
    x = torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage()).cpu()
    return (torch.view_as_real(x) if x.is_complex() else x).double()


def apart(x, y):
    x, y = ((torch.view_as_real(z.resolve_conj()) if z.is_complex() else z).double() for z in (x.detach(), y.detach().cpu()))
    return (x - y).abs().nan_to_num(9e99).max().item() if x.numel() else 0


{run}
for k, n in enumerate({calls}):
    expected, expected_gradients = call(f, "cpu", n, k)
    got, got_gradients = call(run, ocl, n, k)
    names = {names}
    for name, x, y in zip(names, expected, got):
        if not isinstance(x, torch.Tensor) or x.is_nested:
            continue
        if (x.dtype, x.shape) != (y.dtype, y.shape):
            print(f"call {{k}}, {{name}}: {{y.dtype}} {{tuple(y.shape)}} instead of {{x.dtype}} {{tuple(x.shape)}}")
            continue
        far = apart(x, y)
        print(f"call {{k}}, {{name}}: {{tuple(x.shape)}} {{x.dtype}} {{y.stride()}} (CPU {{x.stride()}}), farthest apart {{far:.2e}}")
    tensors = [i for i, x in enumerate(expected) if isinstance(x, torch.Tensor) and not x.is_nested and x.numel()]
    for i in tensors:
        for j in tensors:
            a, b = ([t[m].untyped_storage()._cdata for m in (i, j)] for t in (expected, got))
            if i < j and (a[0] == a[1]) != (b[0] == b[1]):
                print(f"call {{k}}: {{names[i]}} and {{names[j]}} {{'do not share' if a[0] == a[1] else 'share'}} memory")
    for i, (x, y) in enumerate(zip(expected_gradients, got_gradients)):
        if x is not None and y is not None and x.numel():
            print(f"call {{k}}, gradient {{i}}: farthest apart {{apart(x, y):.2e}}")
'''


def script(program: Program, title: str, how: str) -> str:
    """Returns the script. `title` says what is wrong, `how` how it was found."""
    settings = program.settings
    texts = " ".join(text for _, text in program.inputs)
    makers = [f for name, f in MAKERS.items() if f"{name}(" in texts or (name == "make" and "special(" in texts)]
    body = [HEAD.format(title=title.replace('"""', "'''").replace("\\", "\\\\"), how=how)]
    body += ["\n\n" + inspect.getsource(f).rstrip() + "\n" for f in makers]
    names = [name for name, _ in program.inputs]
    lines = "".join(f"    {name} = {text}\n" for name, text in program.inputs if name != "device")
    body.append(f"\n\ndef arguments(device, n, k):\n{lines}    return [{', '.join(names)}]\n")
    body.append(f"\n\n{program.source()}\n")
    if weights := program.weights():
        body.append("\n\nfrom collections.abc import Callable\nfrom typing import Any\n")
        body.append("\n\n" + inspect.getsource(execute.Kept).rstrip() + "\n")
    results = [*names, *(f"output {i} ({o})" for i, o in enumerate(program.outputs))]
    body.append(
        TAIL.format(
            mark=_mark(program), context=_context(program), gradients=_gradients(program), run=_run(program),
            calls=settings.calls, names=results, weights=weights,
        )
    )  # fmt: skip
    return "".join(body)


def _mark(program: Program) -> str:
    if program.settings.dynamic != "mark":
        return ""
    return (
        "    if device != 'cpu':\n"
        "        for x, y in zip(given, arguments('cpu', n + 1, k)):  # what follows n\n"
        "            for d in range(x.dim() if isinstance(x, torch.Tensor) else 0):\n"
        "                if x.shape[d] != y.shape[d]:\n"
        "                    torch._dynamo.maybe_mark_dynamic(x, d)\n"
    )


def _context(program: Program) -> str:
    low = program.settings.autocast
    return f'torch.autocast("ocl", dtype=torch.{low}, enabled=device != "cpu")' if low else "torch.enable_grad()"


def _gradients(program: Program) -> str:
    if not program.settings.gradient:
        return "found = []"
    return (
        "with_gradient = [x for x in given if isinstance(x, torch.Tensor) and x.requires_grad and not x.is_nested]\n"
        "    leaves = list({id(x): x for x in (x if x.is_leaf else x._base for x in with_gradient)}.values())\n"
        "    results_with = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]\n"
        "    weights = [((torch.arange(x.numel()) % 7 - 3) / 4).view(x.shape).to(x.dtype).to(x.device) for x in results_with]\n"
        "    found = torch.autograd.grad(results_with, leaves, weights, allow_unused=True) if results_with and leaves else []"
    )


def _run(program: Program) -> str:
    settings = program.settings
    if settings.mode != COMPILE:
        return "run = f"
    more: list[Any] = ['backend="ocl"']
    if settings.dynamic == "all":
        more.append("dynamic=True")
    if settings.verify:
        more.append('options={"verify": True}')
    weights = program.weights()
    made = f"Kept(f, {[name for name, _ in program.inputs]}, {weights})" if weights else "f"
    return f"run = torch.compile({made}, {', '.join(more)})"

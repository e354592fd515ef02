# tests/conformance/practice.py: which entries of op_db run on the device at sizes of practice, op by op, with gradients.
"""python -m tests.conformance.practice [--device ocl:0] [--match regex] [--part 0/2]

op_db's samples have sizes of 5, 10 and 20, at which decompositions for small inputs apply. Here these constants are 48, 96 and 192, and
512, 1024 and 2048 for linear algebra, and each entry runs its largest sample of up to 2^25 elements in fp32. Prints the entries of
which something ran on the CPU; the exit status is 1 if these, or the entries that
did not run, are more than 3 %. Values are not compared: table.py's runs do that."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import sys
import warnings
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch.testing._internal import common_methods_invocations as invocations
from torch.testing._internal.opinfo import core, definitions

import torch_ocl_compile  # noqa: F401  (registers the device)

LEAST_SHARE = 0.97
MOST_ELEMENTS = 2**25
SAMPLES = 9  # Of an entry's samples, so many are drawn.
SIZES = {"XS": 24, "S": 48, "M": 96, "L": 192}
MATRICES = {"XS": 256, "S": 512, "M": 1024, "L": 2048}
LINEAR_ALGEBRA = r"linalg|cholesky|^lu|qr|svd|eig|pinv|det|solve|matrix|cov|corrcoef|cdist"


def sized(sizes: dict[str, int]) -> None:
    """Gives op_db's constants other values: each of its modules has names of its own for them."""
    parts = [
        importlib.import_module(f"{definitions.__name__}.{m.name}") for m in pkgutil.iter_modules(definitions.__path__)
    ]
    modules: list[ModuleType] = [invocations, core, *parts]
    for module in modules:
        for name, size in sizes.items():
            if isinstance(getattr(module, name, None), int):
                setattr(module, name, size)


def elements(x: Any) -> int:
    if isinstance(x, torch.Tensor):
        return x.numel()
    return sum(map(elements, x)) if isinstance(x, (list, tuple)) else 0


def moved(x: Any, device: str) -> Any:
    if isinstance(x, torch.Tensor):
        return x.detach().to(device).requires_grad_(x.requires_grad)
    if isinstance(x, (list, tuple)) and not hasattr(x, "_fields"):
        return type(x)(moved(y, device) for y in x)
    if isinstance(x, dict):
        return {key: moved(y, device) for key, y in x.items()}
    return device if x == "cpu" or isinstance(x, torch.device) else x


def fallbacks(op: Any, device: str) -> list[str]:
    """Runs an entry. Returns the ops that ran on the CPU."""
    drawn: Iterator[Any] = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    samples = [sample for sample, _ in zip(drawn, range(SAMPLES), strict=False)]
    fitting = [s for s in samples if elements([s.input, s.args]) <= MOST_ELEMENTS]
    sample = max(fitting, key=lambda s: elements([s.input, s.args]))
    given, args, kwargs = (moved(x, device) for x in (sample.input, sample.args, sample.kwargs))
    before = dict(torch.ocl.fallback_counts())
    result = op(given, *args, **kwargs)
    outputs = [x for x in (result if isinstance(result, (list, tuple)) else [result]) if isinstance(x, torch.Tensor)]
    differentiable = [x for x in outputs if x.requires_grad and x.dtype == torch.float32]
    if differentiable:
        torch.autograd.backward(differentiable, [torch.ones_like(x) for x in differentiable])
    after = torch.ocl.fallback_counts()
    return [name for name, count in after.items() if count > before.get(name, 0)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="ocl:0")
    parser.add_argument("--match", default="", help="only entries whose name matches")
    parser.add_argument("--part", default="0/1", help="the number of this process, and how many there are")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    warnings.simplefilter("ignore")
    entries = [
        op for op in invocations.op_db if torch.float32 in op.dtypes and re.search(given.match, op.formatted_name)
    ]
    found: dict[str, list[str]] = {}
    ran = 0
    for op in entries[part::parts]:
        sized(MATRICES if re.search(LINEAR_ALGEBRA, op.name) else SIZES)
        try:
            found[op.formatted_name] = fallbacks(op, given.device)
            ran += 1
        except Exception as error:  # Samples that need sizes of their own, CUDA, or other devices.
            print(f"{op.formatted_name}: not run: {str(error).splitlines()[0][:100]}")
    on_cpu = {name: ops for name, ops in found.items() if ops}
    for name, ops in on_cpu.items():
        print(f"{name}: {', '.join(ops)} on the CPU")
    print(f"{ran - len(on_cpu)} of {ran} entries on the device")
    return int(len(on_cpu) > (1 - LEAST_SHARE) * ran or ran < LEAST_SHARE * len(entries[part::parts]))


if __name__ == "__main__":
    sys.exit(main())

# tests/conformance/practice.py: which entries of op_db run on the device at sizes of practice, op by op, with gradients.
"""python -m tests.conformance.practice [--device ocl:0] [--match regex] [--part 0/2]

op_db's samples have sizes of 5, 10 and 20, at which decompositions for small inputs apply. Here these constants are 48, 96 and 192, and
512, 1024 and 2048 for linear algebra, and each entry runs its largest sample of up to 2^25 elements in fp32. Prints the entries of
which something ran on the CPU; the exit status is 1 if these, or the entries that did not run, are more than 3 %. Values are not
compared: `python -m tests.conformance run` does that."""

from __future__ import annotations

import argparse
import importlib
import itertools
import pkgutil
import re
import sys
import warnings
from types import ModuleType

import torch
from torch.testing._internal import common_methods_invocations as invocations
from torch.testing._internal.opinfo import core, definitions
from torch.utils._pytree import tree_flatten

import torch_ocl_compile  # noqa: F401  (registers the device)
from tests.conformance import cases

LEAST_SHARE = 0.97
MOST_ELEMENTS = 2**25
DRAWN = 9  # Of an entry's samples, so many are drawn.
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


def fallbacks(case: cases.Case, device: str) -> list[str]:
    """Runs the largest sample of a case that is not too large. Returns what ran on the CPU."""
    drawn = itertools.islice(cases.op_samples(case, case.has_gradient), DRAWN)

    def elements(sample: cases.Sample) -> int:
        return sum(x.numel() for x in tree_flatten(sample.make(lambda x: x)[1])[0] if isinstance(x, torch.Tensor))

    sample = max((s for s in drawn if elements(s) <= MOST_ELEMENTS), key=elements)
    function, args = sample.make(cases.to_device(device, case.entry))
    with cases.Eager() as counted:
        cases.evaluate(function, args, case.has_gradient)
    return list(counted)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="ocl:0")
    parser.add_argument("--match", default="", help="only entries whose name matches")
    parser.add_argument("--part", default="0/1", help="the number of this process, and how many there are")
    given = parser.parse_args()
    part, parts = map(int, given.part.split("/"))
    warnings.simplefilter("ignore")
    entries = [
        case
        for case in cases.cases()
        if case.kind == "op" and case.dtype == torch.float32 and re.search(given.match, case.entry)
    ]
    found: dict[str, list[str]] = {}
    for case in entries[part::parts]:
        sized(MATRICES if re.search(LINEAR_ALGEBRA, case.entry) else SIZES)
        try:
            found[case.entry] = fallbacks(case, given.device)
        except Exception as error:  # Samples that need sizes of their own, CUDA, or other devices.
            print(f"{case.entry}: not run: {str(error).splitlines()[0][:100]}")
    ran = len(found)
    on_cpu = {name: ops for name, ops in found.items() if ops}
    for name, ops in on_cpu.items():
        print(f"{name}: {', '.join(ops)} on the CPU")
    print(f"{ran - len(on_cpu)} of {ran} entries on the device")
    return int(len(on_cpu) > (1 - LEAST_SHARE) * ran or ran < LEAST_SHARE * len(entries[part::parts]))


if __name__ == "__main__":
    sys.exit(main())

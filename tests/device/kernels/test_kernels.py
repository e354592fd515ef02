# tests/device/kernels/test_kernels.py: hand-written kernels alone, on a device and in its build workers.
"""The cases are those of csrc/schedule/families/*/cases.cpp at edges of sizes, without the scheduler and with the kernels'
own stores. Guards around the results must stay as they are. Portable kernels run on every device, others where it has
their instructions.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from torch_ocl_compile import _C

pytestmark = pytest.mark.sampled(first=24)
PORTABLE = ("item", "group")


def cases() -> Iterator[tuple[str, str, int]]:
    for row in _C.exec.kernels():
        if row["level"] in PORTABLE:
            for kind in row["types"]:
                count = len(_C.exec.check_cases(row["name"], kind, set="edges", filled=False))
                assert count > 0, row["name"]
                yield from ((row["name"], kind, number) for number in range(count))


@pytest.mark.parametrize("kernel, kind, number", cases())
def test_portable_kernel(ocl_device: str, kernel: str, kind: str, number: int) -> None:
    index = torch.device(ocl_device).index
    [row] = [row for row in _C.exec.kernels() if row["name"] == kernel]
    if row["types"][kind] > 0 and (kernel, row["level"], kind) not in _C.exec.kernels_to_check(index):
        pytest.skip(f"the processor has no instruction for products of {kind}")
    if kernel == "conv_image_statistics_item" and not _C.device_properties(index)["is_cpu"]:
        pytest.skip("no GPU takes it, because its results were wrong on one (csrc/checks/device_check.cpp)")
    assert _C.exec.fault_of_case(index, kernel, kind, number, "edges", in_worker=number % 8 == 7) == ""


def test_kernels_with_special_instructions(ocl_device: str) -> None:
    """On a device that has the instructions, the first cases at edges of each kernel and type."""
    index = torch.device(ocl_device).index
    for kernel, level, kind in _C.exec.kernels_to_check(index):
        if level not in PORTABLE:
            count = len(_C.exec.check_cases(kernel, kind, set="edges", filled=False))
            for number in range(0, min(count, 24), 3):
                assert _C.exec.fault_of_case(index, kernel, kind, number, "edges") == "", (kernel, kind, number)

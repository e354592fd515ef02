# tests/device/ops/test_refused_layouts.py: nested tensors with strided layout: a short error, or the right result.
from __future__ import annotations

import pytest

from tests.device.own_process import run_python

STRIDED = """
import torch
parts = [torch.ones(2, 3), torch.ones(1, 3)]
made = {make}
for name, use in dict(sin=lambda n: n.sin(), sum=lambda n: n.sum(), repr=repr, t=lambda n: n.transpose(1, 2).contiguous(),
    cpu=lambda n: n.cpu(), padded=lambda n: n.to_padded_tensor(0.0), clone=lambda n: n.clone(), mm=lambda n: n @ n,
    list=lambda n: n.unbind()).items():
    try:
        use(made())
    except RuntimeError as error:
        assert name == "mm" or "nested tensors with strided layout" in str(error), (name, error)
print("done")
"""


@pytest.mark.parametrize(
    "make",
    [
        "lambda: torch.nested.nested_tensor(parts, device={device!r})",
        "lambda: torch.nested.nested_tensor(parts).to({device!r})",
        "lambda: torch.nested.as_nested_tensor([p.to({device!r}) for p in parts])",
    ],
    ids=["device", "to", "list"],
)
def test_strided_nested_tensors_do_not_end_the_process(make: str, ocl_device: str) -> None:
    status, out, err = run_python(STRIDED.format(make=make.format(device=ocl_device)))
    assert (status, out.split()[-1:]) == (0, ["done"]), err[-2000:]

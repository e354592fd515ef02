# tests/device/tools/test_doctor.py: the command doctor finds devices with wrong, missing or nonfinite results.
import json
import re

import pytest
import torch

from torch_ocl_compile.cli import devices, main
from torch_ocl_compile.tools import doctor

AILMENTS = {
    "a NaN gradient": lambda loss, w: loss + (w * 0).sqrt().sum(),  # Only the gradient is NaN; the loss is right.
    "an infinite loss": lambda loss, w: loss + float("inf"),
    "a wrong loss": lambda loss, w: loss + (0.01 * loss).detach(),
    "a wrong gradient": lambda loss, w: loss + 0.01 * (w - w.detach()).sum() * loss.detach(),
    "no gradient": lambda loss, w: loss - loss + loss.detach() + w.new_zeros(()).requires_grad_(),
}


class Patient(torch.nn.Module):
    """A model whose results are correct on the CPU, and wrong on the device if it has an ailment."""

    def __init__(self, ailment=""):
        super().__init__()
        self.ailment = ailment
        self.weight = torch.nn.Parameter(torch.rand(8) + 1)

    def inputs(self):
        return (torch.rand(8) + 1,)

    def forward(self, x):
        loss = (x * self.weight).square().sum()
        return AILMENTS[self.ailment](loss, self.weight) if self.ailment and x.device.type == "ocl" else loss


def report(monkeypatch, capsys, device, *checks, arguments=()):
    """Runs doctor with these checks on one device. Returns its exit status and output."""
    monkeypatch.setattr(doctor, "CHECKS", checks)
    monkeypatch.setattr(devices, "show_devices", lambda: None)
    monkeypatch.setattr(torch.ocl, "device_count", lambda: 1)
    original = doctor.examine
    monkeypatch.setattr(doctor, "examine", lambda _: original(torch.device(device)))
    status = main(["doctor", *arguments])
    return status, capsys.readouterr().out


def check(ailment):
    return doctor.Check("patient", torch.float32, lambda: Patient(ailment), 1e-3)


@pytest.mark.parametrize("ailment", AILMENTS)
def test_sick(ailment, ocl_device, monkeypatch, capsys):
    status, out = report(monkeypatch, capsys, ocl_device, check(ailment), check(""))
    assert status == 1
    assert "patient: WRONG RESULTS: the " in out and out.count("patient: good") == 1, out


def test_what_raises_hides_nothing_else(ocl_device, monkeypatch, capsys):
    class Raises(Patient):
        def forward(self, x):
            apart = (
                torch.arange(40.0, device=x.device).to(x.dtype).diag()
            )  # With equal eigenvalues, LAPACK may give up.
            return torch.linalg.eigvals(super().forward(x).expand(40, 40) + apart).real.sum()

    raises = doctor.Check("raises", torch.float32, Raises, 1e-3)
    status, out = report(monkeypatch, capsys, ocl_device, raises, check(""))
    assert status == 1 and "raises: FAILED\n" in out and re.search("linalg.eig", out) and "patient: good" in out, out


def test_healthy(ocl_device, monkeypatch, capsys, sweep):
    """A plain run has every second check, so each network and each type once or twice."""
    names = [c.name for c in doctor.CHECKS]
    assert [f"{kind} {dtype}" for kind in ("convolutions", "attention") for dtype in ("fp32", "fp16", "bf16")] == names
    chosen = doctor.CHECKS if sweep else doctor.CHECKS[::2]
    status, out = report(monkeypatch, capsys, ocl_device, *chosen)
    assert status == 0, out
    assert all(f"{c.name}: good: a training step in" in out for c in chosen), out
    assert f"its place: {torch.ocl.get_device_properties(ocl_device).order}" in " ".join(out.split()), out


def test_json(ocl_device, monkeypatch, capsys):
    """An infinite error is written as null, because JSON has no infinity."""
    status, out = report(monkeypatch, capsys, ocl_device, check("an infinite loss"), check(""), arguments=["--json"])
    found = json.loads(out, parse_constant=lambda text: pytest.fail(text))
    assert status == 1 and found["healthy"] is False
    assert [(c["healthy"], c["error"] is None) for c in found["checks"]] == [(False, True), (True, False)]
    assert found["versions"]["torch"] == torch.__version__ and found["devices"][0]["name"]

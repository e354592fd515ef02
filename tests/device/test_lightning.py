# tests/device/test_lightning.py: the Trainer takes ocl by itself and by name, in 16 bits and under DDP. OclAccelerator parses
# devices and refuses a strategy for another device.
import subprocess
import sys

import pytest
import torch
from own_process import ROOT
from whole_models import import_models

L = import_models("lightning")
from lightning.fabric.utilities.exceptions import MisconfigurationException  # noqa: E402
from lightning.pytorch.plugins import MixedPrecision  # noqa: E402
from lightning.pytorch.strategies import SingleDeviceStrategy  # noqa: E402

from torch_ocl_compile.lightning import OclAccelerator  # noqa: E402

QUIET = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "max_epochs": 1,
}


class Line(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)
        self.seen = set()

    def forward(self, x):
        return self.layer(x)

    def training_step(self, x, index):
        y = self(x)
        self.seen.add((y.device.type, y.dtype))
        return (y.sum(1) - x.sum(1)).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def train(**settings):
    torch.manual_seed(0)
    model = Line()
    trainer = L.Trainer(**QUIET, **settings)
    trainer.fit(model, torch.utils.data.DataLoader(torch.randn(32, 3), batch_size=8))
    return model


@pytest.mark.usefixtures("selected_devices")
def test_devices_are_parsed():
    count = torch.ocl.device_count()
    everything = list(range(count))
    parse = OclAccelerator.parse_devices
    assert parse(count) == parse(-1) == parse(str(count)) == parse(everything) == everything
    assert parse(f"{count - 1},") == parse([count - 1]) == [count - 1]
    assert OclAccelerator.get_parallel_devices([0]) == [torch.device("ocl:0")]
    for missing in (count + 1, [count], f"0,{count}"):
        with pytest.raises(MisconfigurationException, match=f"no device ocl:{count}"):
            parse(missing)


def test_a_strategy_for_another_device_is_refused(ocl_device):
    with pytest.raises(MisconfigurationException, match="the strategy runs on 'cpu'"):
        train(strategy=SingleDeviceStrategy("cpu", OclAccelerator()))


SETTINGS = {
    "nothing": lambda: {},
    "name": lambda: {"accelerator": "ocl"},
    "name and number": lambda: {"accelerator": "ocl", "devices": 1},
    "object": lambda: {"accelerator": OclAccelerator(), "devices": [0]},
}


@pytest.mark.usefixtures("selected_devices")
@pytest.mark.parametrize("settings", SETTINGS)
def test_the_trainer_takes_ocl(settings, monkeypatch):
    # Two devices alike would make two processes.
    monkeypatch.setattr(OclAccelerator, "auto_device_count", staticmethod(lambda: 1))
    model = train(**SETTINGS[settings]())
    assert model.seen == {("ocl", torch.float32)}


def test_the_cpu_is_used_if_it_is_named():
    assert train(accelerator="cpu").seen == {("cpu", torch.float32)}
    assert train(strategy=SingleDeviceStrategy("cpu")).seen == {("cpu", torch.float32)}


@pytest.mark.usefixtures("selected_devices")
def test_auto_takes_devices_that_are_alike(monkeypatch):
    names = ["a", "a", "b", "a"]
    properties = type("Properties", (), {})
    monkeypatch.setattr(torch.ocl, "device_count", lambda: len(names))
    monkeypatch.setattr(torch.ocl, "get_device_properties", lambda i: setattr(p := properties(), "name", names[i]) or p)
    assert OclAccelerator.auto_device_count() == 2


def test_mixed_precision_of_the_trainer(ocl_device):
    model = train(accelerator="ocl", devices=[torch.device(ocl_device).index], precision="bf16-mixed")
    assert model.seen == {("ocl", torch.bfloat16)}


@pytest.mark.parametrize("precision, dtype", [("bf16-mixed", torch.bfloat16), ("16-mixed", torch.float16)])
def test_mixed_precision(precision, dtype, ocl_device):
    # With the default scale of GradScaler, the first steps would overflow and be skipped.
    scaler = torch.amp.GradScaler("ocl", init_scale=16.0) if dtype is torch.float16 else None
    plugin = MixedPrecision(precision, "ocl", scaler)
    model = train(strategy=SingleDeviceStrategy(ocl_device, OclAccelerator(), precision_plugin=plugin))
    assert model.seen == {("ocl", dtype)}
    expected = train(accelerator="cpu")
    for trained, exact in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(trained, exact, rtol=0.02, atol=0.02)


DDP = """
from test_lightning import L, QUIET, Line
import torch

torch.manual_seed(0)
model = Line()
trainer = L.Trainer(accelerator="ocl", devices=[0, 0], strategy="ddp", **QUIET)
trainer.fit(model, torch.utils.data.DataLoader(torch.randn(32, 3), batch_size=8))
print("RANK", trainer.global_rank, *(x for p in model.parameters() for x in p.flatten().tolist()), flush=True)
"""


@pytest.mark.needs("sweep")
@pytest.mark.usefixtures("selected_devices")
def test_two_processes_have_equal_parameters(tmp_path):
    script = tmp_path / "ddp.py"
    script.write_text(f"import sys\nsys.path[:0] = [{str(ROOT / 'tests/device')!r}, {str(ROOT)!r}]\n{DDP}")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = dict(line.split(maxsplit=2)[1:] for line in done.stdout.splitlines() if line.startswith("RANK"))
    assert set(ranks) == {"0", "1"} and ranks["0"] == ranks["1"]

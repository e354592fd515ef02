# tests/device/networks/test_lightning.py: the Trainer and Fabric take ocl by themselves and by name, in 16 bits and under DDP, from both
# packages of Lightning. OclAccelerator parses devices and refuses a strategy for another device.
import importlib
import subprocess
import sys

import pytest
import torch

from tests.device.networks.whole_models import import_models
from tests.device.own_process import ROOT

L = import_models("lightning")
from lightning.pytorch.plugins import MixedPrecision  # noqa: E402
from lightning.pytorch.strategies import SingleDeviceStrategy  # noqa: E402

from torch_ocl_compile.errors import ConfigError  # noqa: E402
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
        with pytest.raises(ConfigError, match=f"no device ocl:{count}"):
            parse(missing)


def test_a_strategy_for_another_device_is_refused(ocl_device):
    with pytest.raises(ConfigError, match="the strategy runs on 'cpu'"):
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


PRECISIONS = {"32-true": torch.float32, "bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}


@pytest.mark.parametrize("how", ["nothing", "name", "strategy"])
@pytest.mark.parametrize("package", ["lightning.fabric", "lightning_fabric"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_fabric(package, precision, how, ocl_device, monkeypatch):
    fabric = pytest.importorskip(package)
    monkeypatch.setattr(OclAccelerator, "auto_device_count", staticmethod(lambda: 1))
    device = torch.device(ocl_device)
    if how == "strategy":
        strategies = importlib.import_module(f"{package}.strategies")
        settings = {"strategy": strategies.SingleDeviceStrategy(device, OclAccelerator())}
    else:
        settings = {"accelerator": "ocl", "devices": [device.index]} if how == "name" else {}
    made = fabric.Fabric(precision=precision, **settings)
    seen, model = [], torch.nn.Linear(3, 2)
    model.register_forward_hook(lambda module, inputs, y: seen.append(y.dtype))
    before = model.weight.detach().clone()
    model, optimizer = made.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    made.backward(model(made.to_device(torch.ones(4, 3))).square().mean())
    optimizer.step()
    assert made.device.type == "ocl" and seen == [PRECISIONS[precision]]
    # With GradScaler's first scale, the step in fp16 may overflow and be skipped.
    assert precision == "16-mixed" or not torch.equal(model.weight.cpu(), before)


@pytest.mark.usefixtures("selected_devices")
@pytest.mark.parametrize("how", ["nothing", "strategy"])
def test_pytorch_lightning(how, monkeypatch):
    """It has classes of its own."""
    lightning = pytest.importorskip("pytorch_lightning")
    monkeypatch.setattr(OclAccelerator, "auto_device_count", staticmethod(lambda: 1))
    other = type(
        "Other",
        (lightning.LightningModule,),
        {name: vars(Line)[name] for name in ("forward", "training_step", "configure_optimizers")},
    )
    model = other()
    model.layer, model.seen = torch.nn.Linear(3, 2), set()
    strategy = (
        {"strategy": lightning.strategies.SingleDeviceStrategy("ocl", OclAccelerator())} if how == "strategy" else {}
    )
    trainer = lightning.Trainer(precision="bf16-mixed", **strategy, **QUIET)
    trainer.fit(model, torch.utils.data.DataLoader(torch.randn(32, 3), batch_size=8))
    assert model.seen == {("ocl", torch.bfloat16)}


DDP = """
from tests.device.networks.test_lightning import L, QUIET, Line
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
    script.write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n{DDP}")
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = dict(line.split(maxsplit=2)[1:] for line in done.stdout.splitlines() if line.startswith("RANK"))
    assert set(ranks) == {"0", "1"} and ranks["0"] == ranks["1"]

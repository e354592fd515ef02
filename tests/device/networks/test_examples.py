# tests/device/networks/test_examples.py: mnist.py reads small idx files, trains, resumes on another device; gpt.py learns; the
# other examples have the same losses, tokens and pictures as on the CPU.
import gzip
import importlib.util
import json
import os
import re
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import fork_server
from tests.device.own_process import FELL_BACK

ROOT = Path(__file__).resolve().parents[3]
COUNTS = {"train": 128, "t10k": 40}  # The last test batch is incomplete.


def write_mnist(folder):
    """Writes four idx files, half of them gzipped. Images of the digit k have k + 1 bright rows."""
    rng = np.random.default_rng(0)
    for part, count in COUNTS.items():
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        images = rng.integers(0, 40, (count, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[: 2 * label + 2] += 200
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x0801, count) + labels.tobytes())
        with gzip.open(folder / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(struct.pack(">IIII", 0x0803, count, 28, 28) + images.tobytes())


def run(folder, device):
    command = [
        str(ROOT / "examples" / "mnist.py"),
        "--device",
        device,
        "--epochs",
        "1",
        "--batch",
        "32",
    ]
    command += ["--data", str(folder), "--checkpoint", str(folder / "model.pt")]
    result = fork_server.run(command, cwd=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    assert FELL_BACK not in result.stderr, "an op stands outside the compiled functions"
    return result.stdout.splitlines()


@pytest.mark.usefixtures("selected_devices")
def test_mnist(tmp_path):
    write_mnist(tmp_path)
    first = run(tmp_path, "ocl")
    assert first[-1].startswith("epoch 1: loss ")
    second = run(tmp_path, "cpu")
    assert second[0].startswith("continuing from ") and second[-1].startswith("epoch 2: loss ")


@pytest.mark.usefixtures("selected_devices")
def test_gpt(tmp_path):
    """A very small model learns the frequencies of letters in 80 steps.

    Its loss falls from log(number of characters) = 4.6 nats to below 3.3. The first lines of the example name
    sizes with which the loss reaches 1.6.
    """
    sizes = "--layers 2 --width 32 --heads 2 --context 32 --batch 16 --lr 5e-3 --steps 80 --every 20 --sample 20"
    command = [str(ROOT / "examples" / "gpt.py"), *sizes.split()]
    result = fork_server.run(command, cwd=tmp_path, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    losses = [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", result.stdout)]
    assert losses[0] > 3.0 and losses[-1] < 3.3 and losses[-1] < losses[0], losses


# timm and transformers import torchvision, which fails to import with a CPU-only torch; import_torchvision() avoids
# this.
PRELUDE = (
    "import importlib.util, runpy, sys; from benchmarks.harness import networks\n"
    "if importlib.util.find_spec('torchvision'): networks.import_torchvision()\n"
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)
# Example with arguments -> (packages that it needs, allowed difference of its losses from those on the CPU)
PROGRAMS = {
    "custom_kernel.py --steps 3": ((), 1e-4),
    "mixed_precision.py --steps 3 --dtype bfloat16": (("sklearn",), 0.02),
    "mixed_precision.py --steps 3 --dtype float16": (("sklearn",), 0.02),
    "classify_timm.py --steps 2 --batch 8": (("sklearn", "timm"), 1e-3),
    "finetune_transformers.py --steps 3 --with accelerate": (("transformers", "accelerate"), 1e-3),
    "finetune_transformers.py --steps 3 --with trainer": (("transformers", "accelerate"), 1e-3),
}


def run_example(command, folder, *more):
    name, *options = command.split()
    arguments = [str(ROOT / "examples" / name), *options, *more]
    result = fork_server.run(["-c", PRELUDE, *arguments], cwd=folder, env={**os.environ, "COLUMNS": "160"}, timeout=400)
    assert result.returncode == 0, result.stdout + result.stderr
    return result


def losses_of(command, device, folder):
    result = run_example(command, folder, "--device", device)
    return [float(loss) for loss in re.findall(r"loss (\d+\.\d+)", result.stdout)], result


def skip_without(*packages):
    for name in packages:
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}: pip install --no-deps {name}")


LONG = ("finetune", " float16", "classify")  # `make sweep` runs them.


@pytest.mark.parametrize(
    "command",
    [pytest.param(c, marks=[pytest.mark.needs("sweep")] if any(w in c for w in LONG) else []) for c in PROGRAMS],
)
@pytest.mark.usefixtures("selected_devices")
def test_losses_are_those_of_the_cpu(command, tmp_path):
    packages, tolerance = PROGRAMS[command]
    skip_without(*packages)
    losses, result = losses_of(command, "ocl", tmp_path)
    expected, _ = losses_of(command, "cpu", tmp_path)
    assert len(losses) == len(expected) == 2
    assert losses == pytest.approx(expected, abs=tolerance)
    if "device " in result.stdout:
        assert "device ocl" in result.stdout, "the library chose another device"


def test_lightning(ocl_device, tmp_path):
    """Compares the loss of the last step and the test accuracy with those on the CPU."""
    skip_without("lightning", "sklearn")
    shown = []
    for device in (ocl_device, "cpu"):
        result = run_example("train_lightning.py --epochs 1", tmp_path, "--device", device)
        assert FELL_BACK not in result.stderr
        assert f"device {device}".removesuffix(":0") in result.stdout, "Lightning chose another device"
        found = re.search(r"loss (\S+)\n.*accuracy\D+(\d\.\d+)", result.stdout, re.DOTALL)
        shown.append([float(number) for number in found.groups()])
    assert shown[0] == pytest.approx(shown[1], abs=0.01)


@pytest.mark.needs("sweep")
@pytest.mark.usefixtures("selected_devices")
def test_generated_text(tmp_path):
    skip_without("transformers")
    result = run_example("generate_text.py --tokens 60 --width 32 --layers 1", tmp_path)
    assert FELL_BACK not in result.stderr
    assert re.search(r"first call: .* 2 graphs compiled", result.stdout), result.stdout
    assert re.search(r"second call: .* 0 graphs compiled", result.stdout), result.stdout
    assert "the tokens are those of the CPU: True" in result.stdout


@pytest.mark.needs("sweep")
@pytest.mark.usefixtures("selected_devices")
def test_diffusion_draws_what_the_cpu_draws(tmp_path):
    skip_without("sklearn", "PIL")
    from PIL import Image

    command = "diffusion_unet.py --steps 3 --batch 8 --channels 8 --ddim-steps 3 --out"
    losses, result = losses_of(f"{command} ocl.png", "ocl", tmp_path)
    assert FELL_BACK not in result.stderr
    assert losses == pytest.approx(losses_of(f"{command} cpu.png", "cpu", tmp_path)[0], abs=1e-3)
    drawn, expected = (np.asarray(Image.open(tmp_path / f"{name}.png"), dtype=int) for name in ("ocl", "cpu"))
    assert drawn.shape == (4 * 80, 8 * 80) and drawn.std() > 10
    assert abs(drawn - expected).max() <= 3


@pytest.mark.needs("sweep")
@pytest.mark.usefixtures("selected_devices")
def test_all_devices_are_compared(tmp_path):
    result = run_example("compare_devices.py --batch 4 --repeats 2", tmp_path)
    assert FELL_BACK not in result.stderr
    rows = re.findall(r"(ocl:\d+|cpu) .*?(\d\.\de-\d+)\D+(\d\.\de-\d+)", result.stdout)
    assert [row[0] for row in rows] == [*(f"ocl:{i}" for i in range(torch.ocl.device_count())), "cpu"]
    assert all(float(error) < 1e-4 for row in rows for error in row[1:]), rows


def test_another_file_is_refused(tmp_path):
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import mnist
    finally:
        sys.path.pop(0)
    path = tmp_path / "labels"
    path.write_bytes(struct.pack(">II", 0x0D01, 0))
    with pytest.raises(ValueError, match="no MNIST idx file"):
        mnist.read_idx(path)


@pytest.mark.needs("sweep")
def test_demo(ocl_device, tmp_path):
    """The status is 1 if the accuracy is too low, which it may be after two epochs."""
    skip_without("sklearn")
    command = [str(ROOT / "examples/demo.py"), "--device", ocl_device, "--epochs", "2", "--output", "own.png", "--json"]
    result = fork_server.run(command, cwd=tmp_path, timeout=400)
    found = json.loads(result.stdout)
    assert result.returncode == int(not found["good"]), result.stderr
    assert found["accuracy"] > 0.5 and found["steps"] == 2 * (1437 // 64) and not found["fallbacks"]
    assert list(found["kernels"]) == ["forward", "backward", "optimizer"] and all(found["kernels"].values())
    assert (tmp_path / "own.png").read_bytes().startswith(b"\x89PNG")

# tests/device/tools/test_mistakes.py: what a newcomer types wrong at first, and the sentence that each mistake gets.
"""A row is a mistake: a function of the device, or a program with its environment, and what the message must say. The message
comes from PyTorch where PyTorch sees the mistake first; then the row says that it still reaches the user."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ocl_run
from tests.device.own_process import run_python
from torch_ocl_compile import config, explain, package
from torch_ocl_compile.cli import main
from torch_ocl_compile.device import environment, runtimes

pytestmark = pytest.mark.sampled()  # Messages do not depend on the runtime.


def compiled(function: Any, **settings: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, backend="ocl", **settings)


def linear(device: str = "cpu") -> nn.Module:
    return nn.Linear(4, 3).to(device)


def x(device: str = "cpu", columns: int = 4, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(2, columns, dtype=dtype, device=device)


def labels(device: str, second: float = 1) -> Tensor:
    return torch.tensor([0, second], device=device)


DEBUG = {"debug": True}
# Name -> the mistake as a function of the device, and what the error says.
ROWS: dict[str, tuple[Callable[[str], Any], str]] = {
    # The backend and its settings
    "a misspelt backend": (
        lambda d: torch.compile(linear(d), backend="olc")(x(d)),
        "Invalid backend: 'olc'.*list_backends",
    ),
    "a misspelt option": (
        lambda d: compiled(linear(d), options={"fallbak": "error"})(x(d)),
        "'fallbak' is unknown; did you mean 'fallback'",
    ),
    "an option of Inductor": (
        lambda d: compiled(linear(d), options={"triton.cudagraphs": True})(x(d)),
        "'triton.cudagraphs' is unknown; there are check, debug",
    ),
    "a wrong value of an option": (
        lambda d: compiled(linear(d), options={"fallback": "never"})(x(d)),
        "'fallback': 'never' is not one of 'eager', 'error'",
    ),
    "a wrong mode": (
        lambda d: compiled(linear(d), mode="fast")(x(d)),
        "mode 'fast' is unknown to the ocl backend; there are default, .*max-autotune",
    ),
    "mode and options": (
        lambda d: compiled(linear(d), mode="max-autotune", options=DEBUG)(x(d)),
        "Either mode or options",
    ),
    "a misspelt option of config": (
        lambda d: config.set("cachedir", "x"),
        "'cachedir' is unknown; did you mean 'cache_dir'",
    ),
    "a number that is none": (lambda d: config.set("cache_size_mb", "much"), "'much' is not an integer"),
    "devices that are set too late": (
        lambda d: (x(d), config.set("devices", "9")),
        "'devices': '9' comes too late.*TORCH_OCL_DEVICES",
    ),
    # Devices
    "a device that does not exist": (lambda d: x("ocl:9"), "device ocl:9 does not exist; there are 0: "),
    "a device without end": (lambda d: x("gpu"), "Expected one of cpu, .*device string: gpu"),
    "set_device": (lambda d: torch.ocl.set_device(9), "device ocl:9 does not exist; there are 0: "),
    "the model on ocl, the data on the CPU": (
        lambda d: compiled(linear(d))(x()),
        "cpu and ocl.*Move inputs, parameters, and buffers to the same device|two different devices",  # torch 2.13 | 2.11
    ),
    "the model on the CPU, the data on ocl": (
        lambda d: compiled(linear())(x(d)),
        "ocl:. and cpu.*Move inputs, parameters, and buffers to the same device|two different devices",  # torch 2.13 | 2.11
    ),
    "the same outside of compiled functions": (
        lambda d: linear(d)(x()),
        r"expected all tensors on one device, got ocl:. and cpu.*x\.to\('ocl:",
    ),
    "labels on the CPU": (
        lambda d: F.cross_entropy(x(d), labels("cpu")),
        r"expected all tensors on one device.*x\.to\('ocl:",
    ),
    "cuda()": (lambda d: x(d).cuda(), "CUDA"),
    "numpy()": (lambda d: x(d).numpy(), r"ocl:. device type tensor to numpy. Use Tensor.cpu\(\)"),
    "a tensor as an array": (lambda d: np.asarray(x(d)), r"ocl:. device type tensor to numpy. Use Tensor.cpu\(\)"),
    "a generator of the CPU": (
        lambda d: torch.randn(3, device=d, generator=torch.Generator()),
        r"expected a generator of ocl:., got one of cpu",
    ),
    # Shapes, types and values
    "a wrong shape": (lambda d: linear(d)(x(d, 5)), r"mat1 and mat2 shapes cannot be multiplied \(2x5 and 4x3\)"),
    "a wrong shape, compiled": (lambda d: compiled(lambda a, b: a + b)(x(d), x(d, 5)), r"must match|broadcast"),
    "a quantized tensor": (
        lambda d: torch.quantize_per_tensor(x(), 0.1, 0, torch.qint8).to(d),
        "hold no quantized tensors.*do: use torch.fake_quantize",
    ),
    "float64 data": (
        lambda d: linear(d)(x(d, dtype=torch.float64)),
        "must have the same dtype, but got Double and Float",
    ),
    "integer data": (
        lambda d: compiled(linear(d))(x(d, dtype=torch.int64)),
        "(same dtype, but got Long and Float|expected).*op: .*module Linear",  # torch 2.13 | 2.11
    ),
    "labels that are floats": (
        lambda d: F.nll_loss(x(d), labels(d, 0.5)),
        "expected target dtype to be Long or Byte, but got Float|expected scalar type Long but found Float",  # torch 2.13 | 2.11
    ),
    "words that are floats": (
        lambda d: nn.Embedding(4, 2).to(d)(labels(d, 0.5)),
        "scalar types: Long, Int; but got torch.*FloatTensor",
    ),
    "a label out of range": (
        lambda d: compiled(F.cross_entropy)(x(d), labels(d, 7)).item(),
        "index 7 is out of bounds for dimension 1 with size 4.*test_mistakes.py",
    ),
    "a word out of range": (
        lambda d: compiled(nn.Embedding(4, 2).to(d), options=DEBUG)(labels(d, 5)),
        "index 5 is out of bounds for dimension 0 with size 4.*module Embedding",
    ),
    "backward of a result without gradient": (
        lambda d: compiled(lambda a: a.sum())(x(d)).backward(),
        "does not require grad",
    ),
    "item() of a matrix": (lambda d: x(d).item(), "a Tensor with 8 elements cannot be converted to Scalar"),
    "if by a matrix": (lambda d: bool(x(d) > 0), "more than one value is ambiguous"),
    "print in a whole graph": (
        lambda d: compiled(lambda a: [print(a.sum().item()), a][1], fullgraph=True)(x(d)),
        "Tensor.item|print",
    ),
    "an op without kernel, forbidden": (
        lambda d: compiled(lambda a: torch.linalg.eig(F.pad(a, (0, 46, 0, 48)))[0], options={"fallback": "error"})(
            x(d)
        ),
        "aten.linalg_eig.default: no lowering.*test_mistakes.py.*do: .*adding_an_op",
    ),
    # Tools
    "explain without a model": (lambda d: explain(x(d), x(d)), "explain takes a model or a function, then its inputs"),
    "a package in training mode": (
        lambda d: package.save("no.ocl", linear().train(), (x(),)),
        r"training mode\n  do: model.eval\(\)",
    ),
    "a package that is not there": (
        lambda d: ocl_run.load("nowhere.ocl"),
        "nowhere.ocl cannot be opened.*do: check the path",
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_mistake(ocl_device: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    mistake, sentence = ROWS[name]
    if name == "cuda()" and torch.cuda.is_available():
        pytest.skip("this torch has CUDA")
    with pytest.raises(Exception) as raised:
        mistake(ocl_device)
    assert re.search(sentence, str(raised.value), re.DOTALL), str(raised.value)


# Environment -> what the first use of the device says. `import torch` alone stays silent.
ENVIRONMENTS = {
    "TORCH_OCL_PROFILE=rtx4090": "ConfigError: environment variable TORCH_OCL_PROFILE: 'rtx4090' is no device profile; there are ",
    "TORCH_OCL_FALLBACK=maybe": "ConfigError: environment variable TORCH_OCL_FALLBACK: 'maybe' is not one of 'eager', 'error'",
    "TORCH_OCL_DUMP=/proc/nowhere": "ConfigError: environment variable TORCH_OCL_DUMP: the folder '/proc/nowhere' cannot be made",
    "TORCH_OCL_DEVICES=amiga": "ConfigError: TORCH_OCL_DEVICES='amiga' matches no device; there are 0: ",
    "TORCH_OCL_CACHEDIR=x": "UserWarning: environment variable TORCH_OCL_CACHEDIR has no effect; did you mean TORCH_OCL_CACHE_DIR?",
}


@pytest.mark.parametrize("setting", ENVIRONMENTS)
def test_wrong_environment(ocl_device: str, setting: str) -> None:
    name, _, value = setting.partition("=")
    program = (
        "import torch, torch_ocl_compile\nprint('imported', flush=True)\nfor _ in range(2): torch.ones(2, device='ocl')"
    )
    status, out, err = run_python(program, **{name: value})
    assert "imported" in out and ENVIRONMENTS[setting] in err, err
    assert status == (1 if "ConfigError" in ENVIRONMENTS[setting] else 0)


def test_the_command_line_says_what_is_wrong(
    ocl_device: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise SystemExit('the program ran')")
    monkeypatch.setenv("TORCH_OCL_FALBACK", "error")
    monkeypatch.setattr(environment, "_told", set())
    for arguments, sentence in (
        (["devicess"], "No such command 'devicess'. Did you mean 'devices'?"),
        (["explain", "train.py:make"], "a target is a script, train.py, or a function of a module, train:make."),
        (["explain", "nowhere.py"], "there is no file 'nowhere.py'"),
    ):
        assert main(arguments) == 2
        shown = capsys.readouterr()
        assert sentence in shown.err and not shown.out
        assert ("TORCH_OCL_FALBACK has no effect; did you mean TORCH_OCL_FALLBACK?" in shown.err) == (
            arguments == ["devicess"]
        )


def test_gpus_that_the_user_may_not_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dri").mkdir()
    (tmp_path / "dri" / "renderD128").touch()
    assert runtimes.closed_gpus(tmp_path) == []
    monkeypatch.setattr(runtimes.os, "access", lambda *_: False)
    (line,) = runtimes.closed_gpus(tmp_path)
    assert "renderD128" in line and "usermod -aG render" in line

# tests/device/tools/test_repro.py: the program that a failed compilation writes to reproduce the error, and Dynamo's
# minifier.
import os
import re
import runpy
import stat
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from tests import fork_server
from torch_ocl_compile import config
from torch_ocl_compile.compile import graph
from torch_ocl_compile.errors import InternalError

pytestmark = pytest.mark.sampled()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    torch._dynamo.reset()
    before = config.get("cache_dir")
    config.set("cache_dir", str(tmp_path / "cache"))
    yield tmp_path / "cache"
    config.set("cache_dir", before)


def planted(monkeypatch, error):
    def fail(*args, **kwargs):
        raise error("planted")

    monkeypatch.setattr(graph, "lower_for_device", fail)


def failure(function, *inputs, **options):
    """Returns the message of a failing compilation, and the path of the program that the message names."""
    with pytest.raises(Exception) as caught:
        torch.compile(function, backend="ocl", options=options)(*inputs)
    message = str(caught.value)
    named = re.search(r"repro: python (\S+)", message)
    return message, Path(named[1]) if named else None


@pytest.mark.parametrize("error", [InternalError, AssertionError])
def test_a_failed_compile_leaves_a_program_that_fails_alike(cache, monkeypatch, ocl_device, error):
    w = torch.randn(3, 5, device=ocl_device).t()

    def function(x, n):
        return torch.relu(x @ w[:, :n]) + torch.tensor([1.0, 2.0, 4.0], device=ocl_device)[:n]

    with monkeypatch.context() as patched:
        planted(patched, error)
        message, program = failure(function, torch.randn(4, 5, device=ocl_device), 3)
        assert program is not None and program.is_relative_to(cache / "failed"), message
        assert "planted" in message
        with pytest.raises(error, match="planted"):
            runpy.run_path(str(program), run_name="__main__")
    assert stat.S_IMODE(program.stat().st_mode) == 0o600
    done = fork_server.run([str(program)])
    assert done.returncode == 0, done.stderr
    differences = re.findall(r"result 0: shape \(4, 3\), largest difference (\S+)", done.stdout)
    assert len(differences) == 1 and float(differences[0]) < 1e-5, done.stdout


def test_a_failed_backward_and_changing_sizes_leave_a_program(cache, monkeypatch, ocl_device):
    real = graph.lower_for_device

    def fail_in_backward(gm, **boundaries):
        if "separate_views" in boundaries:
            raise InternalError("planted")
        return real(gm, **boundaries)

    monkeypatch.setattr(graph, "lower_for_device", fail_in_backward)
    x = torch.randn(4, 5, device=ocl_device, requires_grad=True)
    with pytest.raises(Exception, match="planted") as caught:
        torch.compile(lambda t: torch.tanh(t) * 2, backend="ocl", dynamic=True)(x).sum().backward()
    program = Path(re.search(r"repro: python (\S+)", str(caught.value))[1])
    assert "it may not fail" in program.read_text()
    monkeypatch.undo()
    runpy.run_path(str(program), run_name="__main__")


def test_an_error_of_the_user_leaves_nothing(cache, ocl_device):
    message, program = failure(lambda x: x + 1, torch.ones(3, device=ocl_device), nonsense=1)
    assert "nonsense" in message and program is None and not (cache / "failed").exists()


def test_a_folder_that_cannot_be_written_hides_no_error(cache, monkeypatch, ocl_device):
    planted(monkeypatch, InternalError)
    cache.mkdir(exist_ok=True)
    (cache / "failed").write_text("a file, where a folder should be")
    message, program = failure(lambda x: x + 1, torch.ones(3, device=ocl_device))
    assert "planted" in message and program is None


# The minifier

SCRIPT = """
import torch, torch_ocl_compile
m = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 8), torch.nn.Sigmoid()).to("ocl")
torch.compile(m, backend="ocl")(torch.randn(4, 8, device="ocl"))
"""

# The minifier starts other programs, so the fault is planted in every Python process.
SITE = """
import importlib.util, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch_ocl_compile.compile.graph":
            return None
        sys.meta_path.remove(Finder)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            real = module.lower_for_device

            def lower_for_device(gm, **boundaries):
                from torch import ops
                from torch_ocl_compile.errors import InternalError
                for node in gm.graph.nodes:
                    if node.target is ops.aten.relu.default:
                        {mistake}
                return real(gm, **boundaries)

            module.lower_for_device = lower_for_device

        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, Finder)
"""


@pytest.mark.needs("sweep")
@pytest.mark.parametrize(
    "mistake, level",
    [
        pytest.param("raise InternalError('planted')", 2, id="crash"),
        pytest.param("node.target = ops.aten.abs.default", 4, id="wrong result"),
    ],
)
def test_the_minifier_finds_the_op(tmp_path, ocl_device, mistake, level):
    if str(ocl_device) != "ocl:0":
        pytest.skip("the programs that the minifier writes run on the first device")
    (tmp_path / "sitecustomize.py").write_text(SITE.replace("{mistake}", mistake))
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))

    def run(program, **variables):
        environment = {**os.environ, "PYTHONPATH": str(tmp_path), **variables}
        return subprocess.run(
            [sys.executable, str(program)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    first = run("script.py", TORCHDYNAMO_REPRO_AFTER="dynamo", TORCHDYNAMO_REPRO_LEVEL=str(level))
    launchers = list(tmp_path.rglob("minifier_launcher.py"))
    assert len(launchers) == 1, first.stderr
    second = run(launchers[0])
    smallest = tmp_path / "repro.py"
    assert smallest.exists(), second.stderr
    operations = re.findall(r"= torch\.(\S+)\(", smallest.read_text().split("def forward")[1])
    assert operations == ["nn.functional.relu"]

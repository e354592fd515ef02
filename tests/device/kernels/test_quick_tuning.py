# tests/device/kernels/test_quick_tuning.py: `torch-ocl tune --quick` ends in time, stores what it has, and goes on the next time.
import json
import math
import re
import time

import pytest
import torch

from tests.device.kernels.test_tuning import graph_of, own_table, reread, settings, the_case, tuned  # noqa: F401  (own_table is a fixture)
from torch_ocl_compile import _C
from torch_ocl_compile.cli import main
from torch_ocl_compile.compile import call
from torch_ocl_compile.tuning import measure, shapes


@pytest.fixture(autouse=True)
def no_limit(monkeypatch):
    monkeypatch.setattr(measure, "until", math.inf)
    monkeypatch.setattr(measure, "left_out", set())


@pytest.fixture
def index(ocl_device):
    return torch.device(ocl_device).index


def test_without_time_nothing_is_measured(index, monkeypatch):
    graph, problem, _ = the_case(index)
    monkeypatch.setattr(measure, "until", time.monotonic() - 1)
    assert tuned(graph, index) == ([], [])
    assert measure.left_out == {problem} and not reread(index).choices


def test_a_problem_that_was_cut_is_stored_and_measured_again(index, monkeypatch):
    graph, problem, choices = the_case(index)
    compile_variant = measure._compile

    def slow(*args):
        time.sleep(0.3)
        return compile_variant(*args)

    monkeypatch.setattr(measure, "_compile", slow)
    monkeypatch.setattr(measure, "until", time.monotonic() + 0.1)
    [first], _ = tuned(graph, index)
    assert first.cut and first.tried == 1 and first.choice == first.model_choice == choices[0]
    assert reread(index).choices[problem]["cut"] is True and measure.left_out == {problem}

    monkeypatch.setattr(measure, "_compile", compile_variant)
    monkeypatch.setattr(measure, "until", math.inf)
    [second], _ = tuned(graph, index)
    assert not second.cut and second.tried >= len(choices) and not measure.left_out
    assert "cut" not in reread(index).choices[problem]
    assert tuned(graph, index) == ([], [])


def test_first_choices_come_first_and_fast_templates_before_slow_ones():
    choices = [("a x=1", ""), ("a x=2", "x=2"), ("b y=1", ""), ("b y=2", "y=2"), ("c z=1", ""), ("c z=2", "z=2")]
    times = {"a x=1": 2.0}
    order = measure.attempts(choices, times)
    assert [next(order), next(order)] == ["b y=1", "c z=1"]
    times |= {"b y=1": 1.0}  # c failed
    assert list(order) == ["b y=2", "a x=2", "c z=2"]
    graph = graph_of("gemm")
    for _, _, found in _C.exec.tuning_cases(graph, 0, settings()):
        assert sorted([found[0][0], *measure.attempts(found, {})]) == sorted(choice for choice, _ in found)


def test_the_command_measures_usual_shapes(index, monkeypatch, capsys):
    monkeypatch.setattr(shapes, "STANDARD", ("gemm:32x64x48", "conv:1x8x8x8,16x3x3"))
    assert main(["tune", "--quick", "--device", f"ocl:{index}"]) == 0
    out = capsys.readouterr().out
    found = re.search(r" of (\d) problems became faster; all together ", out)
    assert found and "the time ended" not in out, out
    # A device may have one kernel only for the convolution.
    assert int(found[1]) in ((2,) if torch.ocl.get_device_properties(index).is_cpu else (1, 2))
    assert len(reread(index).choices) == int(found[1]) and call.watch is None and measure.until == math.inf


def test_the_command_says_what_is_left(index, capsys):
    assert main(["tune", "--quick", "--minutes", "0", "--device", f"ocl:{index}", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measured"] == [] and len(found["left_out"]) == len(shapes.STANDARD)


@pytest.mark.parametrize("text", shapes.STANDARD)
def test_usual_shapes_are_shapes(text):
    function, inputs = shapes.job(text, torch.device("cpu"), torch.float32)
    assert callable(function) and inputs


def test_a_program_ends_with_the_time(index, tmp_path, capsys):
    """It would run for ever."""
    script = tmp_path / "endless.py"
    script.write_text(f"""
import torch
a = torch.randn(24, 40, device="ocl:{index}")
f = torch.compile(lambda a: a @ a.t(), backend="ocl")
with torch.no_grad():
    while True:
        try:
            f(a)
        except Exception:
            pass
""")
    start = time.monotonic()
    assert main(["tune", "--quick", "--minutes", "0.1", str(script)]) == 0
    assert 5 < time.monotonic() - start < 100
    out = capsys.readouterr().out
    assert ("problems became faster" in out or "the time ended: 1 problems are not tuned" in out) and call.watch is None

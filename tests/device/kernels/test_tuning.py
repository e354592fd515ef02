# tests/device/kernels/test_tuning.py: measured choices of kernel variants are stored, used, and rejected if their results are
# wrong.
from __future__ import annotations

import json
import subprocess
import sys
import warnings

import pytest
import torch

from tests.device import faults
from tests.no_device.choices.test_choices import graph_of
from torch_ocl_compile import _C, config
from torch_ocl_compile.cli import main
from torch_ocl_compile.tuning import measure, table

CASE = "gemm"


@pytest.fixture(autouse=True)
def own_table(tmp_path, monkeypatch):
    """Gives the test an empty table in a new cache, and restores the process's table afterwards."""
    monkeypatch.setattr(measure, "_stopped", False)
    monkeypatch.setattr(measure, "session", [])
    monkeypatch.setattr(measure, "SECONDS", 0.0)
    with config.override(cache_dir=str(tmp_path)):
        config.configure_core()
        table.forget()
        yield
    measure._kept.clear()
    config.configure_core()
    table.forget()


def settings() -> dict:
    return dict(config.compile_options(None))


def the_case(index):
    graph = graph_of(CASE)
    ((problem, _, candidates),) = _C.exec.tuning_cases(graph, index, settings())
    return graph, problem, [choice for choice, _ in candidates]


def tuned(graph, index):
    """Tunes the graph. Returns the results and the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = measure.tune_graph(graph, index, settings())
    return results, [str(w.message) for w in caught if "kernel variant" in str(w.message)]


def followed(graph, index):
    """Compiles and runs the graph, and checks the result. Returns whether the plan uses a measured choice."""
    table.follow(index)
    plan = _C.exec.compile(graph, index, [], settings())
    a, b = torch.randn(256, 1024), torch.randn(1024, 192)
    (got,) = plan.run([a.to(f"ocl:{index}"), b.to(f"ocl:{index}")])
    torch.testing.assert_close(got.cpu(), a @ b, rtol=1e-4, atol=1e-3)
    return any(line.endswith(", measured") for line in plan.log)


def reread(index):
    """Reads the table again, as another process would."""
    table.forget()
    return table.table_of(index)


@pytest.fixture
def index(ocl_device):
    return torch.device(ocl_device).index


def test_what_was_measured_is_stored_and_followed(index):
    graph, problem, choices = the_case(index)
    assert not followed(graph, index)
    results, warned = tuned(graph, index)
    assert [r.problem for r in results] == [problem] and not warned
    assert results[0].choice in choices or results[0].choice.split()[0] in {c.split()[0] for c in choices}
    assert results[0].tried >= len(choices) and results[0].ms > 0
    assert reread(index).choices[problem]["choice"] == results[0].choice
    assert followed(graph, index)
    assert tuned(graph, index) == ([], []), "what is stored is not measured again"
    with config.override(tuned=False):
        assert not followed(graph, index)


def test_mode_max_autotune_measures(index):
    function = torch.compile(lambda a, b: torch.relu(a @ b), backend="ocl", mode="max-autotune", dynamic=False)
    a, b = torch.randn(64, 96), torch.randn(96, 80)
    with torch.no_grad():
        got = function(a.to(f"ocl:{index}"), b.to(f"ocl:{index}"))
    torch.testing.assert_close(got.cpu(), torch.relu(a @ b), rtol=1e-4, atol=1e-3)
    assert [t.problem.split()[0] for t in measure.session] == ["gemm"]


def replaced(monkeypatch, choice, change):
    """Replaces the results of `choice` by those of `change(plan)`."""
    compile_variant = measure._compile

    def compile_or_change(alone, index, given, wanted):
        plan = compile_variant(alone, index, given, wanted)
        return change(plan) if wanted == choice else plan

    monkeypatch.setattr(measure, "_compile", compile_or_change)


class Changed:
    def __init__(self, run):
        self.run = run


def check_disabled(graph, problem, choices, index, reason):
    bad = choices[1]
    results, warned = tuned(graph, index)
    assert len(warned) == 1 and bad in warned[0] and reason in warned[0], warned
    assert all(r.choice != bad for r in results)
    found = reread(index)
    assert set(found.disabled) == {bad} and reason in found.disabled[bad]
    # The disabled choice is not used even if the table names it, and there is no second warning.
    table.save(found, problem, {"choice": bad})
    table.refresh(index)
    assert problem not in found.followed() and not followed(graph, index)
    measure.session.clear()
    measure._stopped = False
    found.choices.clear()
    _, warned = tuned(graph, index)
    assert not warned


def test_a_wrong_result_disables_a_variant(index, monkeypatch):
    graph, problem, choices = the_case(index)

    def wrong(plan):
        def run(args):
            (result,) = plan.run(args)
            # Makes one element of the last tile wrong.
            result[-1, -1] += 0.5
            return [result]

        return Changed(run)

    replaced(monkeypatch, choices[1], wrong)
    check_disabled(graph, problem, choices, index, "its result is wrong")


def test_a_nan_disables_a_variant(index, monkeypatch):
    graph, problem, choices = the_case(index)
    replaced(monkeypatch, choices[1], lambda plan: Changed(lambda args: [plan.run(args)[0] * float("nan")]))
    check_disabled(graph, problem, choices, index, "not finite")


def test_a_build_failure_disables_a_variant(index, monkeypatch):
    graph, problem, choices = the_case(index)
    compile_plan = _C.exec.compile

    def breaking(g, i, calls, options):
        with faults.changed(faults.NOT_C if options.get("choice") == choices[1] else []):
            return compile_plan(g, i, calls, options)

    monkeypatch.setattr(_C.exec, "compile", breaking)
    check_disabled(graph, problem, choices, index, "it failed")


def test_a_variant_that_does_not_end_is_left_at_the_deadline(index, monkeypatch):
    graph, problem, choices = the_case(index)

    class Endless:
        def query(self):
            return False

    def endless(plan):
        def run(args):
            config.set("tune_deadline", 1e-6)
            monkeypatch.setattr(measure, "_marker", lambda index: Endless())
            return plan.run(args)

        return Changed(run)

    replaced(monkeypatch, choices[1], endless)
    with config.override():
        check_disabled(graph, problem, choices, index, "still ran after")
    torch.accelerator.synchronize(index)


def test_a_variant_that_ended_the_process_is_disabled(index):
    _, _, choices = the_case(index)
    found = table.table_of(index)
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    mark = table.TrialMark(found, choices[1], "some problem")
    mark.value = json.dumps({"pid": child.pid, "problem": "some problem"})
    mark.__enter__()
    with pytest.warns(UserWarning, match="did not come back"):
        assert set(reread(index).disabled) == {choices[1]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(reread(index).disabled) == {choices[1]}


def test_rows_of_another_driver_are_not_followed(index):
    graph, problem, choices = the_case(index)
    key = table.device_key(index)
    for other in (
        table.DeviceKey(key.device, key.driver + ".1", key.units),
        table.DeviceKey("another", key.driver, key.units),
        table.DeviceKey(key.device, key.driver, key.units + 1),
    ):
        table.save(table.Table(other), problem, {"choice": choices[1]})
    assert not reread(index).choices and not followed(graph, index)
    table.save(table.Table(key), problem, {"choice": choices[1]})
    assert reread(index).choices and followed(graph, index)


@pytest.mark.parametrize("value", ["not json", "[1]", '{"choice": 7}', '{"choice": "a b=1=2"}', "{}", '{"choice": ""}'])
def test_corrupt_rows_are_ignored_with_a_warning(index, value):
    graph, problem, choices = the_case(index)
    key = table.device_key(index)
    table.save(table.Table(key), problem, {"choice": choices[1]})
    _C.exec.cache_store("tuning", "\n".join(("choice", key.text(), "another")), value)
    with pytest.warns(UserWarning, match="1 rows of the tuning table .* are ignored"):
        assert set(reread(index).choices) == {problem}
    assert followed(graph, index)


def shipped(path, **entry):
    content = {"format": table.FORMAT, "devices": [entry]}
    path.write_text(json.dumps(content))
    return path


def test_the_shipped_table(index, tmp_path, monkeypatch):
    graph, problem, choices = the_case(index)
    key = table.device_key(index)
    path = tmp_path / "shipped.json"
    monkeypatch.setattr(table, "SHIPPED", path)
    for entry, follows in (
        ({"device": key.device, "driver": ""}, True),
        ({"device": key.device, "driver": key.driver, "units": key.units}, True),
        ({"device": key.device, "driver": "another"}, False),
        ({"device": key.device, "units": key.units + 1}, False),
        ({"device": "another"}, False),
    ):
        shipped(path, **entry, choices={problem: choices[1]})
        assert (reread(index).followed() == {problem: choices[1]}) is follows
        assert followed(graph, index) is follows
    # A choice that was measured on this machine has priority over a shipped one.
    shipped(path, device=key.device, choices={problem: choices[1]})
    table.save(reread(index), problem, {"choice": choices[0]})
    assert reread(index).followed() == {problem: choices[0]}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"format": 99, "devices": []}',
        '{"format": 1}',
        '{"format": 1, "devices": [{}]}',
        '{"format": 1, "devices": [3]}',
    ],
)
def test_a_shipped_table_that_cannot_be_read(index, tmp_path, monkeypatch, content):
    path = tmp_path / "shipped.json"
    path.write_text(content)
    monkeypatch.setattr(table, "SHIPPED", path)
    with pytest.warns(UserWarning, match="cannot be read and"):
        assert reread(index).followed() == {}


def test_the_table_in_the_package_can_be_read(index):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        table.shipped_choices(table.device_key(index), table.SHIPPED)


def test_an_export_can_be_shipped(index, tmp_path, monkeypatch):
    graph, problem, choices = the_case(index)
    found = table.table_of(index)
    table.save(found, problem, {"choice": choices[1], "model_choice": choices[0]})
    table.save(found, "another", {"choice": choices[0], "model_choice": choices[0]})
    path = tmp_path / "table.json"
    assert table.export(found, path) == table.export(found, path) == 1
    assert table.clear() == 2
    monkeypatch.setattr(table, "SHIPPED", path)
    assert reread(index).followed() == {problem: choices[1]} and followed(graph, index)


# On the first device only: the command works in the same way on every device.
@pytest.mark.sampled()
def test_the_command(index, tmp_path, capsys):
    script = tmp_path / "model.py"
    script.write_text(
        "import sys, torch\n"
        "f = torch.compile(lambda x: x @ x, backend='ocl', dynamic=False)\n"
        "with torch.no_grad(): f(torch.ones(40, 40, device=sys.argv[1]))\n"
    )
    torch._dynamo.reset()
    assert main(["tune", str(script), f"ocl:{index}"]) == 0
    assert "gemm" in capsys.readouterr().out
    assert main(["tune", "--device", f"ocl:{index}", "conv:1x32x8x8,32x3x3", "attention:1x2x40x16"]) == 0
    out = capsys.readouterr().out
    assert all(kind in out for kind in ("conv_forward", "conv_data", "attention"))
    assert main(["tune", "--json", "--device", f"ocl:{index}", "conv:1x32x8x8,32x3x3"]) == 0
    assert json.loads(capsys.readouterr().out)["measured"] == [], "all of it is stored"
    assert main(["tune", "gemm:40x40"]) == 2
    assert "gemm:MxNxK" in capsys.readouterr().err
    assert main(["tune", "--forget"]) == 0 and "rows erased" in capsys.readouterr().out


@pytest.mark.sampled()
def test_gradients_of_attention_are_tuned_on_statistics_that_a_row_may_have(index, monkeypatch):
    """Tuning makes up the row maxima and sums that gradients of attention read. Sums must be positive: for others,
    kernels that take their logarithm give NaN."""
    compile_plan, cases = _C.exec.compile, []

    def compiling(graph, position, calls, options, *rest):
        cases.extend(_C.exec.tuning_cases(graph, position, dict(options)))
        return compile_plan(graph, position, calls, options, *rest)

    q, k, v = (torch.randn(1, 2, 64, 32, device=f"ocl:{index}", requires_grad=True) for _ in range(3))
    attend = torch.compile(torch.nn.functional.scaled_dot_product_attention, backend="ocl", dynamic=False)
    with monkeypatch.context() as patched:
        patched.setattr(_C.exec, "compile", compiling)
        attend(q, k, v).sum().backward()
    gradients = [(alone, choices) for problem, alone, choices in cases if problem.startswith("attention_")]
    assert len(gradients) == 2
    for alone, choices in gradients:
        inputs = measure.example_inputs(alone, index)
        assert (inputs[measure.STATISTICS_OPERAND][1] > 0).all()
        for choice, _ in choices:
            plan = measure._compile(alone, index, settings(), choice)
            assert all(y.isfinite().all() for y in measure._run(plan, inputs, index)), choice


def test_combinations_of_faster_choices():
    choices = [("t a=1 b=1", ""), ("t a=2 b=1", "a=2"), ("t a=3 b=1", "a=3"), ("t a=1 b=2", "b=2"), ("u c=1", "")]
    times = {"t a=1 b=1": 1.0, "t a=2 b=1": 0.9, "t a=3 b=1": 0.8, "t a=1 b=2": 0.9, "u c=1": 0.5}
    assert measure.combined(choices, times) == ["t a=3 b=2"]
    assert measure.combined(choices, times | {"t a=1 b=2": 0.99}) == [], "one knob gained: that is a candidate already"

# tests/device/stored/test_stored_plans.py: plans of eager ops in the cache: what their keys depend on, and invalid entries.
"""How other processes use stored plans is tested in test_second_process.py."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_ocl_compile import _C, config, identity
from torch_ocl_compile.decompositions.forms import FORMS
from torch_ocl_compile.eager import reasons
from torch_ocl_compile.tuning import table


def counted(call: Any) -> tuple[Any, dict[str, int]]:
    """Returns the call's result, and by how much it increased each counter of eager ops."""
    before = _C.eager_counters()
    result = call()
    return result, {name: count - before[name] for name, count in _C.eager_counters().items()}


def asked_anew(call: Any) -> tuple[Any, dict[str, int]]:
    """Drops the plans in memory, as in a new process, and runs the call. Returns what counted() returns."""
    _C.forget_eager_plans()
    return counted(call)


def test_entries_that_end_too_early(ocl_device: str, own_cache: Path) -> None:
    """Entries that are too short or too long, but have a right checksum, are rejected and replaced."""
    x = torch.arange(6.0).to(ocl_device)
    expected = torch.arange(6.0) * 2.5 + 1
    _, counters = asked_anew(lambda: x * 2.5 + 1)
    assert counters == {"compiled": 2, "from_cache": 0, "stored": 2, "rejected": 0}
    whole = _C.testing.cache_entries("eager")
    longest = max(len(entry) for entry in whole.values())
    for size in [*range(0, longest, 97), longest - 1, longest + 1]:
        for key, entry in whole.items():
            _C.exec.cache_store("eager", key, (entry + b"!")[:size] or b"?")
        result, counters = asked_anew(lambda: x * 2.5 + 1)
        torch.testing.assert_close(result.cpu(), expected)
        assert counters["rejected"] == counters["compiled"] > 0, (size, counters)
        assert _C.testing.cache_entries("eager") == whole  # The entries have been stored again.
    with torch.ocl.record() as launches:
        assert asked_anew(lambda: x * 2.5 + 1)[1]["compiled"] == 0
        torch.ocl.synchronize()
    assert [launch.graph for launch in launches] == ["eager_mul", "eager_add"]


def test_entries_of_other_code(
    ocl_device: str, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edited source, another build and another torch have separate entries."""
    x = torch.ones(5, device=ocl_device)
    assert asked_anew(lambda: x.cosh())[1]["compiled"] == 1
    ours = identity.of_code()
    source = tmp_path / "package" / "lowering.py"
    source.parent.mkdir()
    source.write_text("a = 1")
    monkeypatch.setattr(identity, "_LOADED", source.stat().st_mtime + 1)
    monkeypatch.setattr(identity, "_PACKAGE", source.parent)
    seen = {ours}
    try:
        for change in (
            lambda: None,
            lambda: source.write_text("a = 2"),
            lambda: source.rename(source.with_name("other.py")),
        ):
            change()
            identity.of_code.cache_clear()
            seen.add(identity.of_code())
        with monkeypatch.context() as patched:
            patched.setattr(torch, "__version__", "2.0.made_up")
            identity.of_code.cache_clear()
            seen.add(identity.of_code())
        with monkeypatch.context() as patched:
            patched.setattr(_C, "build_id", lambda: "0123")
            identity.of_code.cache_clear()
            seen.add(identity.of_code())
            _, counters = asked_anew(lambda: x.cosh())
            assert counters == {"compiled": 1, "from_cache": 0, "stored": 1, "rejected": 0}
    finally:
        identity.of_code.cache_clear()
    assert len(seen) == 6 and "" not in seen
    monkeypatch.undo()
    assert asked_anew(lambda: x.cosh())[1]["from_cache"] == 1


def test_sources_that_change_while_the_process_runs(
    ocl_device: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If a source file changes after the process started, the code in memory may differ from the files, from which keys
    are made. So no plan is stored or read."""
    x = torch.ones(5, device=ocl_device)
    assert asked_anew(lambda: x.sinh())[1]["stored"] == 1
    monkeypatch.setattr(identity, "_LOADED", 0.0)
    # The compiled code may come from another version of the source than the key.
    assert asked_anew(lambda: x.cosh())[1]["stored"] == 0
    identity.of_code.cache_clear()
    try:
        assert asked_anew(lambda: x.sinh())[1] == {"compiled": 1, "from_cache": 0, "stored": 0, "rejected": 0}
    finally:
        identity.of_code.cache_clear()


def test_options_have_entries_of_their_own(ocl_device: str, own_cache: Path) -> None:
    x = torch.ones(5, device=ocl_device)
    assert asked_anew(lambda: x.tan())[1]["compiled"] == 1
    with config.override(kernel_family="item"):
        assert asked_anew(lambda: x.tan())[1]["compiled"] == 1
    # A dump needs the trace, so the plan is compiled and not read from the cache.
    with config.override(dump=str(own_cache / "dump")):
        assert asked_anew(lambda: x.tan())[1] == {"compiled": 1, "from_cache": 0, "stored": 0, "rejected": 0}
    assert list((own_cache / "dump").glob("eager_tan_*.fx.txt"))
    assert asked_anew(lambda: x.tan())[1]["from_cache"] == 1


SETTINGS = {
    "default dtype": (torch.set_default_dtype, torch.get_default_dtype, torch.float16),
    "precision": (torch.set_float32_matmul_precision, torch.get_float32_matmul_precision, "high"),
    "deterministic": (torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled, True),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_torch_have_entries_of_their_own(ocl_device: str, own_cache: Path, name: str) -> None:
    """A trace may read these settings, so plans in memory and in the cache are separate for each value."""
    change, get, other = SETTINGS[name]
    x, out = torch.ones(3, 3, device=ocl_device), torch.zeros(3, 3, device=ocl_device)

    def product() -> torch.Tensor:
        return torch.mm(x, x, out=out)

    before = get()
    assert asked_anew(product)[1]["compiled"] == 1
    try:
        change(other)
        assert counted(product)[1]["compiled"] == 1
        assert asked_anew(product)[1] == {"compiled": 0, "from_cache": 1, "stored": 0, "rejected": 0}
    finally:
        change(before)
    assert counted(product)[1] == {"compiled": 0, "from_cache": 1, "stored": 0, "rejected": 0}
    assert counted(product)[1]["from_cache"] == 0


def test_ops_of_others_are_not_stored(ocl_device: str, own_cache: Path) -> None:
    """Ops of other packages are not stored, because another version may change their meaning."""
    with torch.library._scoped_library("stored_plans", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        x = torch.arange(3.0).to(ocl_device)
        result, counters = asked_anew(lambda: torch.ops.stored_plans.twice(x))
    assert result.tolist() == [0, 2, 4] and counters["stored"] == 0
    assert "stored_plans::twice" in reasons()


def test_replaced_formulas_are_not_stored(ocl_device: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a program replaces a decomposition, plans that use it are not stored for other programs."""
    x = torch.ones(5, device=ocl_device)
    monkeypatch.setitem(FORMS, "aten.sinh.out", lambda a, *, out: out.copy_(a + 41))
    result, counters = asked_anew(lambda: x.sinh())
    assert result.tolist() == [42] * 5 and counters["compiled"] == 1 and counters["stored"] == 0
    monkeypatch.undo()
    result, counters = asked_anew(lambda: x.sinh())
    torch.testing.assert_close(result.cpu(), torch.ones(5).sinh())
    assert counters["stored"] == 1


def test_a_choice_that_was_measured_later(ocl_device: str, own_cache: Path) -> None:
    """A plan from the cache uses a kernel choice that was measured after the plan was stored."""
    index = torch.device(ocl_device).index
    a, b = torch.randn(96, 160), torch.randn(160, 96)
    there = a.to(ocl_device), b.to(ocl_device)

    def kernels() -> list[str]:
        with torch.ocl.record() as launches:
            result, counters = asked_anew(lambda: there[0].mm(there[1]))
        torch.testing.assert_close(result.cpu(), a @ b, rtol=1e-4, atol=1e-4)
        assert counters["compiled"] == first
        return [launch.kernel for launch in launches]

    first = 1
    modelled = kernels()
    first = 0
    assert kernels() == modelled
    (entry,) = _C.testing.cache_entries("eager").values()
    graph = _C.ir.Graph.parse(graph_in(entry))
    ((problem, _, candidates),) = _C.exec.tuning_cases(graph, index, dict(config.compile_options(None)))
    found = table.table_of(index)
    chosen = set()
    for choice, turned in candidates[1:]:
        if turned:
            table.save(found, problem, {"choice": choice})
            table.forget()
            chosen.add(tuple(kernels()))
    assert len(chosen - {tuple(modelled)}) > 0


def graph_in(entry: bytes) -> str:
    """Returns the graph in an entry, before which stand the format, the kind and an empty reason."""
    before = re.match(rb"8 recipe 6 0 0  (\d+) ", entry)
    assert before is not None
    return entry[before.end() :][: int(before[1])].decode()

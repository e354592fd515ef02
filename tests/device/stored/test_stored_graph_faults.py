# tests/device/stored/test_stored_graph_faults.py: stored graphs: what their keys depend on, and damaged entries.
from __future__ import annotations

import logging
import os
import sqlite3

import pytest
import torch
import torch.nn.functional as F

from tests.device.stored.stored_graphs import Counted, messages, one_graph, own_cache  # noqa: F401  (a fixture)
from tests.fuzz import edited
from torch_ocl_compile import _C, config
from torch_ocl_compile.compile import cache_key, debug, plan_store
from torch_ocl_compile.tuning import table


def test_options_are_part_of_the_key(ocl_device):
    assert one_graph(ocl_device).compiled
    for options in ({"verify": True}, {"debug": True}, {"fallback": "error"}, {"units": 3}, {"disable": "gemm_item"}):
        assert one_graph(ocl_device, **options).compiled == 1, options
        assert one_graph(ocl_device, **options).loaded == 1, options
    for _ in range(2):
        counted = one_graph(ocl_device, interpret=True)
        assert counted.compiled and not counted.loaded, "interpret is never stored"
    assert one_graph(ocl_device).loaded == 1


def test_other_version(ocl_device, monkeypatch):
    assert one_graph(ocl_device).compiled
    monkeypatch.setattr(cache_key, "of_code", lambda: "another")
    assert one_graph(ocl_device).compiled
    monkeypatch.undo()
    assert one_graph(ocl_device).loaded


def test_own_lowering_is_part_of_the_key(ocl_device, monkeypatch):
    scope: dict = {}
    exec("def one(c, *args): return NotImplemented\ndef two(c, *args): return None", scope)
    assert one_graph(ocl_device).compiled
    for function in ("one", "two"):
        monkeypatch.setitem(cache_key.LOWERINGS, torch.ops.aten.linalg_eig.default, scope[function])
        assert one_graph(ocl_device).compiled
        assert one_graph(ocl_device).loaded


def test_tf32_is_part_of_the_key(ocl_device):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(before)  # For torch, setting the default value is not the same as no setting.
    assert one_graph(ocl_device).compiled
    try:
        torch.set_float32_matmul_precision("high")
        assert one_graph(ocl_device, tolerance=2e-3).compiled  # TF32 has 10 bits
    finally:
        torch.set_float32_matmul_precision(before)
    assert one_graph(ocl_device).loaded


def test_newer_choice_of_a_kernel_is_followed(ocl_device):
    """A stored graph is scheduled when it is loaded, so it uses kernel choices that were measured after it was
    stored."""
    index = torch.device(ocl_device).index
    assert one_graph(ocl_device).compiled
    record = debug.records()[-1]
    graph = _C.ir.parse_graph(record.text())
    ((problem, _, candidates),) = _C.exec.tuning_cases(graph, index, dict(config.compile_options(None)))
    taken = record.plan.schedule()
    other = next(choice for choice, _ in candidates[1:])
    found = table.table_of(index)
    table.save(found, problem, {"choice": other, "ms": 1.0, "model_ms": 2.0})
    table.refresh(index)
    try:
        assert one_graph(ocl_device).loaded
        assert debug.records()[-1].plan.schedule() != taken
        assert any("measured" in line for line in debug.records()[-1].plan.log)
    finally:
        table.clear()
        table.refresh(index)


def keys(tmp_path):
    """Returns the keys of the stored graphs."""
    with sqlite3.connect(tmp_path / "cache" / "cache.sqlite") as db:
        return [key for (key,) in db.execute("SELECT key FROM entries WHERE tab='graphs'")]


@pytest.mark.parametrize("harm", ["truncated", "flipped", "other pickle", "plan truncated", "plan flipped"])
def test_damaged_entry(ocl_device, tmp_path, harm):
    """The damaged entry has a right checksum, as if it had been stored so. It causes one warning, and is replaced."""
    assert one_graph(ocl_device).compiled
    (key,) = keys(tmp_path)
    value = _C.exec.cache_find("graphs", key)
    if harm.startswith("plan"):
        (content,) = plan_store._contents(key)
        entry = plan_store.pickle.loads(content)
        stored = entry.compiled_fw.result.stored
        half = len(stored) // 2
        entry.compiled_fw.result.stored = (
            stored[:half]
            if harm == "plan truncated"
            else stored[:half] + bytes([stored[half] ^ 255]) + stored[half + 1 :]
        )
        _C.exec.cache_erase("graphs", key)
        plan_store._store(key, plan_store.pickle.dumps(entry))
    elif harm == "other pickle":
        _C.exec.cache_erase("graphs", key)
        plan_store._store(key, plan_store.pickle.dumps({"a": 1}))
    else:
        _C.exec.cache_store(
            "graphs", key, value[: len(value) // 2] if harm == "truncated" else value[:9] + b"x" + value[10:]
        )
    with messages() as lines:
        counted = one_graph(ocl_device)
    assert counted.compiled, "it is compiled anew"
    assert len(lines) == 1 and "stored graph" in lines[0] and "anew" in lines[0]
    assert one_graph(ocl_device).loaded, "the new entry is good"


def test_bytes_flipped_in_the_file(ocl_device, tmp_path):
    assert one_graph(ocl_device).compiled
    with sqlite3.connect(tmp_path / "cache" / "cache.sqlite") as db:
        (value,) = db.execute("SELECT value FROM entries WHERE tab='graphs'").fetchone()
        db.execute("UPDATE entries SET value=? WHERE tab='graphs'", (value[:40] + b"?" + value[41:],))
    assert one_graph(ocl_device).compiled
    assert _C.exec.cache_stats()["rejected"] == 1
    assert one_graph(ocl_device).loaded


def test_results_with_other_strides(ocl_device, tmp_path):
    """A stored forward graph is not used if its saved tensors have other strides than the stored backward graph
    expects."""
    assert one_graph(ocl_device).compiled
    (key,) = keys(tmp_path)
    (content,) = plan_store._contents(key)
    entry = plan_store.pickle.loads(content)
    body = plan_store.stored_plan.unpack(entry.compiled_fw.result.stored)
    body.strides = [[2]]
    entry.compiled_fw.result.stored = plan_store.stored_plan.pack(body)
    _C.exec.cache_erase("graphs", key)
    plan_store._store(key, plan_store.pickle.dumps(entry))
    with messages() as lines:
        assert one_graph(ocl_device).compiled
    assert ["other strides" in line for line in lines] == [True]


@pytest.mark.parametrize("state", ["off", "small", "read-only"])
def test_cache_that_stores_nothing(ocl_device, tmp_path, state):
    size, folder = {"off": (0, "off"), "small": (1, "small"), "read-only": (1024, "none")}[state]
    with config.override(cache_size_mb=size, cache_dir=str(tmp_path / folder)):
        if state == "small":
            config.configure_core()
            # A large entry fills the cache.
            plan_store._C.exec.cache_store("graphs", "large", os.urandom(2**20 - 4096))
        if state == "read-only":
            (tmp_path / folder).write_text("no folder")
        assert one_graph(ocl_device).compiled
        second = one_graph(ocl_device)
        assert second.compiled or state == "small"
    assert one_graph(ocl_device).compiled


def test_cache_turned_off_in_torch(ocl_device):
    with torch._functorch.config.patch(enable_autograd_cache=False):
        for _ in range(2):
            counted = one_graph(ocl_device)
            assert counted.compiled and not counted.loaded


def test_graph_that_cannot_be_stored(ocl_device, monkeypatch):
    """The log says why the graph cannot be stored. The graph is compiled each time."""

    def refuse(body):
        raise TypeError("no pickle of a cucumber")

    monkeypatch.setattr(plan_store.stored_plan, "pack", refuse)
    with messages(logging.INFO) as lines:
        for _ in range(2):
            assert one_graph(ocl_device).compiled
    assert sum("cannot be stored" in line and "cucumber" in line for line in lines) == 2


def test_other_backends_keep_their_cache(ocl_device, tmp_path, monkeypatch):
    """torch's own cache functions still work for other backends, and our compilations leave torch's settings
    unchanged."""
    from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCache

    settings = torch._functorch.config.save_config(), torch.compiler.config.cache_key_tag
    assert one_graph(ocl_device).compiled
    assert (torch._functorch.config.save_config(), torch.compiler.config.cache_key_tag) == settings
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    content = plan_store.pickle.dumps({"not": "ours"})
    AOTAutogradCache._write_to_local_cache("a_key", content)
    assert _C.exec.cache_find("graphs", "a_key") == b""
    assert list(AOTAutogradCache.iterate_over_candidates(True, None, "a_key")) == [({"not": "ours"}, content, True)]
    assert [path.name for path in (tmp_path / "inductor").iterdir()] == ["aotautograd"]


FLOATS = {
    "clamp": lambda x, k: ((x * k) - 9).clamp(min=-k).exp(),
    "alpha": lambda x, k: torch.add(x * 0.9**k, x, alpha=k),
    "slope": lambda x, k: F.leaky_relu(x * -k, k * 0.1),
    "exponent": lambda x, k: (x * k) ** k,
    "quantile": lambda x, k: (x * k).quantile(k / 10),
    "product": lambda x, k: x * k,
}


@pytest.mark.sampled(every=0)
@pytest.mark.parametrize("name", FLOATS)
def test_a_float_that_changes(ocl_device, name):
    """Each call computes with its own number, with stored graphs of other numbers in the cache, too."""
    for numbers in ((1.5, 2.0, 3.0, 4.0), (1.25, 3.0, 2.5, 2.0)):
        torch._dynamo.reset()
        compiled = torch.compile(FLOATS[name], backend="ocl")
        for k in numbers:
            x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
            y = x.detach().to(ocl_device).requires_grad_()
            expected, found = FLOATS[name](x, k), compiled(y, k)
            expected.sum().backward()
            found.sum().backward()
            torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(y.grad.cpu(), x.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(
    torch.__version__ < "2.13", reason="torch 2.11 does not find the entry of a graph with such a float again"
)
def test_a_float_that_changes_is_loaded(ocl_device):
    """An entry serves each number of an op that takes any, and the same numbers of an op that needs their values."""
    for name, others in (("product", 2), ("clamp", 1)):
        for numbers, loaded in (
            ((1.5, 2.0, 3.0), 0),
            ((1.5, 2.0, 3.0), 3 if name == "clamp" else 2),
            ((1.5, 2.5), others),
        ):
            torch._dynamo.reset()
            compiled = torch.compile(FLOATS[name], backend="ocl")
            with Counted() as counted:
                for k in numbers:
                    compiled(torch.ones(3).to(ocl_device), k)
            assert counted.loaded == loaded, (name, numbers)


@pytest.mark.sampled(every=0)
@pytest.mark.parametrize("seed", [100007, 100018, 100021])
def test_an_edited_program(ocl_device, tmp_path, seed):
    """Pairs of programs for which graphs of the first one were used in the second one (tests/fuzz/edited.py)."""
    fine, _ = edited.run_pair(seed, ocl_device, str(tmp_path))
    assert fine

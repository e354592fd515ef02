# tests/device/stored/test_artifacts.py: caches that are moved: torch's cache artifacts, and files of `torch-ocl cache export`.
from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import fork_server
from tests.device.own_process import ROOT, run_python
from tests.device.stored.stored_graphs import messages, one_graph, own_cache  # noqa: F401  (a fixture)
from torch_ocl_compile import _C, cache_file, config
from torch_ocl_compile.device import artifacts
from torch_ocl_compile.errors import ToolError
from torch_ocl_compile.tuning import table

# A training step: a compiled model, an eager loss, a fused optimizer. LOAD and SAVE are files of artifacts, "" for none.
PROGRAM = """
import json, os, sys, torch
from torch_ocl_compile import _C
from torch_ocl_compile.compile import debug

load, save, device = os.environ["TEST_LOAD"], os.environ["TEST_SAVE"], os.environ["TEST_DEVICE"]
if load:
    info = torch.compiler.load_cache_artifacts(open(load, "rb").read())
    assert info.ocl_artifacts, info
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.GELU(), torch.nn.LayerNorm(5), torch.nn.Linear(5, 3))
x = torch.randn(4, 7)
exact = model.double()(x.double()).square().mean().item()
model, x = model.float().to(device), x.to(device)
optimizer = torch.optim.Adam(model.parameters(), fused=True)
loss = torch.compile(model, backend="ocl")(x).square().mean()
loss.backward()
optimizer.step()
if save:
    content, info = torch.compiler.save_cache_artifacts()
    open(save, "wb").write(content)
    assert info.artifacts["ocl"] and not info.artifacts["aot_autograd"], info
builds = _C.exec.build_counters()
print(json.dumps({"error": abs(loss.item() - exact), "weights": [p.tolist() for p in model.parameters()],
                  "built": builds["built"] - builds["unkept"], "eager": _C.eager_counters()["compiled"],
                  "compiled": debug.compiled_graphs(), "loaded": debug.loaded_graphs()}))
"""


def run(device: str, cache: Path, load: str = "", save: str = "", fresh: bool = False) -> dict[str, Any]:
    status, out, err = run_python(
        PROGRAM, fresh, TEST_DEVICE=device, TORCH_OCL_CACHE_DIR=str(cache), TEST_LOAD=load, TEST_SAVE=save
    )
    assert status == 0, err[-3000:]
    assert not load or "artifact" not in err, err
    return json.loads(out.splitlines()[-1])


def assert_warm(second: dict[str, Any], first: dict[str, Any]) -> None:
    assert second["error"] < 1e-6 and second["weights"] == first["weights"]
    assert first["compiled"] and first["eager"]
    assert (second["built"], second["compiled"], second["eager"]) == (0, 0, 0)
    assert second["loaded"] == first["compiled"]


@pytest.mark.sampled()
def test_artifact_in_a_process_with_an_empty_cache(ocl_device: str, tmp_path: Path) -> None:
    """The second process builds no kernel and lowers no graph. The artifact that it saves works in a third process."""
    first = run(ocl_device, tmp_path / "a", save=str(tmp_path / "artifact"))
    second = run(ocl_device, tmp_path / "b", load=str(tmp_path / "artifact"), save=str(tmp_path / "again"), fresh=True)
    assert_warm(second, first)
    assert_warm(run(ocl_device, tmp_path / "c", load=str(tmp_path / "again")), first)


def test_exported_file(ocl_device: str, tmp_path: Path) -> None:
    """The exported file contains compiled graphs and plans of eager ops."""
    first = run(ocl_device, tmp_path / "a")
    for cache, command in (("a", "export"), ("b", "import")):
        done = fork_server.run(
            ["-m", "torch_ocl_compile", "cache", command, str(tmp_path / "file.zip"), "--device", ocl_device],
            {**os.environ, "PYTHONPATH": str(ROOT), "TORCH_OCL_CACHE_DIR": str(tmp_path / cache)},
        )
        assert done.returncode == 0, done.stderr
        assert " 1 compiled graphs, " in done.stdout
    assert_warm(run(ocl_device, tmp_path / "b"), first)


@pytest.fixture
def artifact(ocl_device: str) -> bytes:
    """The archive of the cache of this process, which has compiled a small graph."""
    assert one_graph(ocl_device).compiled
    index = torch.device(ocl_device).index
    _C.exec.cache_store("kernels", _C.exec.store_prefix(index) + "one", b"this process may have its kernels already")
    entries = cache_file.read_entries({name: _C.exec.cache_used(name) for name in cache_file.TABLES})
    assert entries["graphs"]
    return cache_file.pack(index, entries, {})


def emptied() -> int:
    """Empties the cache. Returns the number of entries that were stored so far."""
    _C.exec.cache_clear()
    return int(_C.exec.cache_stats()["stores"])


@pytest.mark.parametrize("field", ["driver", "version", "device", "prefix", "units", "format"])
def test_artifact_of_another_machine(ocl_device: str, artifact: bytes, field: str) -> None:
    """The artifact is refused by its header, with one line in the log; its entries are not read."""
    with zipfile.ZipFile(io.BytesIO(artifact)) as archive, io.BytesIO() as file:
        with zipfile.ZipFile(file, "w") as other:
            head = json.loads(archive.read(cache_file.HEADER))
            other.writestr(cache_file.HEADER, json.dumps({**head, field: "other"}))
            other.writestr(cache_file.CHOICES, "this is no JSON")
        content = file.getvalue()
    stores = emptied()
    with messages() as lines:
        artifacts.load(artifacts.key_of(content), content)
    what = {"prefix": "build options", "units": "number of compute units"}.get(field, field)
    assert len(lines) == 1 and f"is not for this machine: its {what} is 'other'" in lines[0], lines
    assert _C.exec.cache_stats()["stores"] == stores
    assert one_graph(ocl_device).compiled


def test_graphs_of_another_build(ocl_device: str, artifact: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An artifact of another build of the package brings its kernels into the cache, but not its graphs."""
    emptied()
    with monkeypatch.context() as patched, messages() as lines:
        patched.setattr(cache_file.identity, "of_code", lambda: "another build")
        artifacts.load(artifacts.key_of(artifact), artifact)
    assert len(lines) == 1 and "another build of torch_ocl_compile" in lines[0]
    assert not _C.exec.cache_keys("graphs") and _C.exec.cache_keys("kernels")
    assert one_graph(ocl_device).compiled


def test_damaged_artifact(ocl_device: str, artifact: bytes) -> None:
    key = artifacts.key_of(artifact)
    stores = emptied()
    for content in (artifact[: len(artifact) // 2], artifact[:99] + b"?" + artifact[100:], b""):
        with messages() as lines:
            artifacts.load(key, content)
        assert len(lines) == 1 and "damaged" in lines[0]
    assert _C.exec.cache_stats()["stores"] == stores
    artifacts.load(key, artifact)
    assert one_graph(ocl_device).loaded


@pytest.mark.sampled()
def test_flipped_bytes_of_a_file(ocl_device: str, artifact: bytes) -> None:
    """One byte of the file is changed. The file is then refused, or its entries are still right."""
    index = torch.device(ocl_device).index
    emptied()
    refused = 0
    for at in range(0, len(artifact), max(1, len(artifact) // 300)):
        content = artifact[:at] + bytes([artifact[at] ^ 0x55]) + artifact[at + 1 :]
        try:
            cache_file.unpack(index, io.BytesIO(content), "file")
        except ToolError as error:
            assert "file is" in str(error)
            refused += 1
    assert refused > 250
    counted = one_graph(ocl_device)  # It checks the result of the graph.
    assert counted.compiled or counted.loaded


def test_artifact_has_measured_choices(ocl_device: str, artifact: bytes) -> None:
    index = torch.device(ocl_device).index
    table.save(
        table.table_of(index), "a problem", {"choice": "gemm_item tile=6x4", "model_choice": "gemm_item tile=2x4"}
    )
    content = cache_file.pack(index, cache_file.read_entries({}), cache_file.choices_of(index))
    emptied()
    table.forget()
    assert "a problem" not in table.table_of(index).followed()
    artifacts.load(artifacts.key_of(content), content)
    assert table.table_of(index).followed()["a problem"] == "gemm_item tile=6x4"
    table.clear()
    table.refresh(index)


def test_saving_twice(ocl_device: str) -> None:
    """The second save has the graphs of both compilations. After clear(), a save makes the artifact again."""
    from torch.compiler._cache import CacheArtifactManager

    with CacheArtifactManager.with_fresh_cache():
        assert one_graph(ocl_device).compiled
        _, info = torch.compiler.save_cache_artifacts()
        (first,) = info.ocl_artifacts
        assert torch.compiler.save_cache_artifacts()[1].ocl_artifacts == [first]
        assert one_graph(ocl_device, units=3).compiled
        content, info = torch.compiler.save_cache_artifacts()
        assert info.ocl_artifacts[0] == first and len(info.ocl_artifacts) == 2
        emptied()
        torch.compiler.load_cache_artifacts(content)
        assert one_graph(ocl_device).loaded and one_graph(ocl_device, units=3).loaded
        CacheArtifactManager.clear()
        assert len(torch.compiler.save_cache_artifacts()[1].ocl_artifacts) == 1


def test_no_cache(ocl_device: str, artifact: bytes) -> None:
    """Without a cache, torch's functions work, and save no artifact of ocl."""
    from torch.compiler._cache import CacheArtifactManager

    with config.override(cache_size_mb=0), CacheArtifactManager.with_fresh_cache():
        assert one_graph(ocl_device).compiled
        saved = torch.compiler.save_cache_artifacts()
        assert saved is None or not saved[1].artifacts["ocl"]
        with messages() as lines:
            artifacts.load(artifacts.key_of(artifact), artifact)
        assert len(lines) == 1 and "no cache" in lines[0]

# tests/device/stored/test_second_process.py: processes that use the kernels and eager plans that an earlier process stored.
from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.device.own_process import run_python

# The program prints its results, its counters, and the modules of the compiler that it has imported.
PROGRAM = """
import hashlib, json, os, sys, warnings, torch
from torch_ocl_compile import _C, eager

device, found, asked = os.environ["TEST_DEVICE"], {}, []
warnings.simplefilter("ignore")

def keep(name, *tensors):
    digest = hashlib.sha256()
    for t in tensors:
        digest.update(repr((t.dtype, t.shape, t.stride())).encode() + t.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    found[name] = digest.hexdigest()

def refused(call):
    try:
        call()
    except RuntimeError as error:
        return torch.tensor(list(str(error).encode()))
    raise AssertionError("not refused")

x = torch.linspace(-2, 2, 12, device=device).view(3, 4)
y = torch.linspace(3, -1, 12).view(3, 4).to(device)
keep("pointwise", x + 1, torch.sigmoid(x) * y, x / 3 - y, x > y, x.half().exp())
keep("numbers", *(x * k for k in (0.5, 1.5, 2.5, 3.5, 4.5, 5.5)))
keep("sizes", *(torch.ones(k, 3, device=device).cumsum(0) for k in range(2, 9)))
keep("integers", torch.arange(7, device=device) // 2, torch.arange(7, device=device) + 1.5)
keep("reductions", x.sum(1), x.var(), x.argmax(), x.softmax(0), torch.nn.functional.layer_norm(x, [4]))
keep("products", x @ y.t(), torch.nn.functional.linear(x, y))
z = x.clone()
z[:, 1:3].mul_(2)
z.t()[0].add_(1)
z[1].copy_(y[2])
keep("views", z, z[:, ::2] - 1)
torch.manual_seed(3)
keep("random", torch.rand(5, device=device), z.normal_(), torch.nn.functional.dropout(x), torch.randperm(9, device=device))
keep("out", torch.add(x, y, out=torch.empty(0, device=device)), torch.sub(x, y, out=torch.empty(4, 3, device=device).t()))
keep("lists", *torch._foreach_add([x, y], [y, x], alpha=2), *torch._foreach_norm([x, y]))
adam = [[x.clone(), y.clone()], [y.clone(), x.clone()], [x * 0, y * 0], [x * 0, y * 0]]
for lr in (1e-3, 2e-3):
    steps = [torch.ones((), device=device) for _ in range(2)]
    torch._fused_adam_(*adam, [], steps, lr=lr, beta1=0.9, beta2=0.999, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False)
keep("adam", *adam[0], *adam[2])
i = torch.tensor([2, 0, 2], device=device)
keep("index_put", z.index_put_((i,), y[:3], accumulate=True), z[i], z.index_select(1, i))
keep("sorted", *x.sort(descending=True), *x.topk(2))
keep("counted", x[x > 0], x.nonzero())
keep("fallback", torch.linalg.eigvals(torch.eye(40, device=device)))
keep("stft", torch.stft(torch.ones(64, device=device), 16, return_complex=True).abs())
keep("refused", refused(lambda: x @ x))
modules = [m for m in ("torch._dynamo", "torch._inductor", "sympy", "torch_ocl_compile.lowering") if m in sys.modules]
print(json.dumps({"found": found, "modules": modules, "fallbacks": torch.ocl.fallback_counts(), "reasons": eager.reasons(),
                  **_C.eager_counters(), "cache": _C.exec.cache_stats(), "built": _C.exec.build_counters()}))
"""


def run(device: str, folder: Path, program: str = PROGRAM, fresh: bool = True, **env: str) -> dict[str, Any]:
    status, out, err = run_python(program, fresh, TEST_DEVICE=device, TORCH_OCL_CACHE_DIR=str(folder), **env)
    assert status == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


REPORTS = ("found", "fallbacks", "reasons")


def assert_same(second: dict[str, Any], first: dict[str, Any]) -> None:
    """Asserts that values, fallbacks and the reasons of fallbacks are equal."""
    for report in REPORTS:
        assert second[report] == first[report]


@pytest.fixture(scope="module")
def written(ocl_device: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """Returns the output of a process that starts with an empty cache, and the cache that it leaves."""
    folder = tmp_path_factory.mktemp("stored")
    return run(ocl_device, folder, fresh=False), folder


def copied(folder: Path, to: Path) -> sqlite3.Connection:
    """Copies the cache of `folder` to `to`, and opens it."""
    (to / "cache.sqlite").touch(0o600)
    made = sqlite3.connect(to / "cache.sqlite")
    with sqlite3.connect(folder / "cache.sqlite") as source:
        source.backup(made)
    return made


def test_a_second_process_compiles_nothing(ocl_device: str, written: tuple[dict[str, Any], Path]) -> None:
    first, folder = written
    assert first["compiled"] > 50 and first["fallbacks"] and first["reasons"]
    second = run(ocl_device, folder)
    assert_same(second, first)
    assert second["compiled"] == second["stored"] == second["rejected"] == 0
    assert second["from_cache"] >= first["stored"]
    assert second["modules"] == []
    if not first["built"]["unkept"]:
        assert second["built"]["built"] == 0


DAMAGE = {
    "truncated": "substr(value, 1, length(value) / 2)",
    "flipped": "CAST(substr(value, 1, 40) || x'ff' || substr(value, 42) AS BLOB)",
    "empty": "x''",
}


# The test damages the file, so one device is enough.
@pytest.mark.sampled()
def test_damaged_entries(ocl_device: str, written: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    """Damaged entries are rejected; their ops are compiled and stored again."""
    first, folder = written
    with copied(folder, tmp_path) as db:
        for number, value in enumerate(DAMAGE.values()):
            changed = db.execute(
                f"UPDATE entries SET value = {value} WHERE tab = 'eager' AND id % {len(DAMAGE)} = {number}"
            )
            assert changed.rowcount > 5
    db.close()
    second = run(ocl_device, tmp_path)
    assert_same(second, first)
    assert second["cache"]["rejected"] == first["stored"] and second["stored"] == first["stored"]
    assert run(ocl_device, tmp_path)["compiled"] == 0


NUMBERS = """
import json, os, torch
from torch_ocl_compile import _C
x = torch.ones(3, device=os.environ["TEST_DEVICE"])
assert [(x * k).tolist() for k in FACTORS] == [[k] * 3 for k in FACTORS]
print(json.dumps(_C.eager_counters()))
"""


@pytest.mark.sampled()
def test_exact_plans_of_several_processes(ocl_device: str, tmp_path: Path) -> None:
    """Two processes store four exact plans of one class. A third process uses all four instead of a general plan."""
    for factors, compiled in (([0.5, 1.5, 2.5], 3), ([3.5], 1), ([0.5, 1.5, 2.5, 3.5], 0)):
        ended = run(ocl_device, tmp_path, NUMBERS.replace("FACTORS", str(factors)), fresh=False)
        assert ended["compiled"] == compiled


AFTERWARDS = """
import json, os, sys, threading, torch
from torch_ocl_compile import _C
device = os.environ["TEST_DEVICE"]
x = torch.arange(6.0, device=device)
results = []
threads = [threading.Thread(target=lambda k=k: results.append((x * k - 1).exp().sum().item())) for k in (0.5, 1.5, 2.5, 3.5)]
for t in threads: t.start()
for t in threads: t.join()
early = "torch._dynamo" in sys.modules
model = torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.GELU()).to(device)
optimizer = torch.optim.Adam(model.parameters(), fused=True)
compiled = torch.compile(model, backend="ocl", fullgraph=True)
for _ in range(2):
    loss = compiled(x[None]).square().sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
assert loss.isfinite() and (x.view(2, 3).erfinv() * 0 == 0).any()
lowering = "torch_ocl_compile.lowering" in sys.modules
print(json.dumps({"results": sorted(results), "early": early, "lowering": lowering, **_C.eager_counters()}))
"""


@pytest.mark.sampled()
def test_torch_compile_and_threads_afterwards(ocl_device: str, tmp_path: Path) -> None:
    """With plans from the cache, eager ops import no compiler. torch.compile imports it later, and works.

    The threads multiply by floats: which integers get a plan of their own depends on the order in which threads arrive."""
    first = run(ocl_device, tmp_path, AFTERWARDS, fresh=False)
    second = run(ocl_device, tmp_path, AFTERWARDS)
    assert second["results"] == first["results"]
    expected = sorted((torch.arange(6.0) * k - 1).exp().sum().item() for k in (0.5, 1.5, 2.5, 3.5))
    torch.testing.assert_close(torch.tensor(first["results"]), torch.tensor(expected))
    assert first["early"] and not second["early"] and second["lowering"]
    assert first["compiled"] > 0 and second["compiled"] == 0


FORKED = """
import json, os, torch
from torch_ocl_compile import _C
child = os.fork()
x = torch.arange(4.0).to(os.environ["TEST_DEVICE"])
right = (x.square() + 1).tolist() == [1, 2, 5, 10]
if child == 0:
    os._exit(0 if right and _C.eager_counters()["compiled"] == int(os.environ["TEST_COMPILED"]) else 1)
print(json.dumps({"right": right, "child": os.waitpid(child, 0)[1], **_C.eager_counters()}))
"""


@pytest.mark.sampled()
def test_a_child_that_was_forked_before(ocl_device: str, tmp_path: Path) -> None:
    """A process forks before it uses the device. Parent and child then use the same cache."""
    assert run(ocl_device, tmp_path, FORKED, fresh=False, TEST_COMPILED="2")["right"]
    ended = run(ocl_device, tmp_path, FORKED, TEST_COMPILED="0")
    assert ended["right"] and ended["child"] == 0 and ended["compiled"] == 0


COPIES = """
import json, os, torch
from torch_ocl_compile import _C
x = torch.linspace(-2, 2, 12).view(3, 4).to(os.environ["TEST_DEVICE"])
assert x.half().t().contiguous().tolist() == torch.linspace(-2, 2, 12).view(3, 4).half().t().tolist()
print(json.dumps(_C.exec.build_counters()))
"""


def test_copies_find_their_kernels(ocl_device: str, tmp_path: Path) -> None:
    """Copies use kernels without a plan. A process that only copies finds them in the cache."""
    first = run(ocl_device, tmp_path, COPIES, fresh=False)
    second = run(ocl_device, tmp_path, COPIES)
    assert first["built"] > 0 and second["built"] == (first["built"] if first["unkept"] else 0)


@pytest.mark.parametrize("child", [False, True], ids=["alone", "with a forked child"])
def test_the_file_alone_has_everything_when_a_process_has_ended(tmp_path: Path, ocl_device: str, child: bool) -> None:
    """SQLite keeps new entries in a second file. A forked child that ends must not touch its parent's connection."""
    fork = "import os, sys\nif os.fork() == 0: sys.exit()\nos.wait()" if child else ""
    program = f"import torch\nx = torch.ones(3, device='{ocl_device}')\n(x + 1).cpu()\n{fork}\n(x * 3).cpu()\n"
    status, _, err = run_python(program, TORCH_OCL_CACHE_DIR=str(tmp_path))
    assert status == 0, err
    log = tmp_path / "cache.sqlite-wal"
    assert not log.exists() or log.stat().st_size == 0
    alone = tmp_path / "alone.sqlite"
    alone.write_bytes((tmp_path / "cache.sqlite").read_bytes())
    with sqlite3.connect(alone) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert db.execute("SELECT count(*) FROM entries WHERE tab = 'eager'").fetchone()[0] >= 2

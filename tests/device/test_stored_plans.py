# tests/device/test_stored_plans.py: plans of eager ops that an earlier process left in the cache, whole, damaged and outdated.
from __future__ import annotations

import json
import sqlite3
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.device.own_process import run_python
from torch_ocl_compile import _C, config, identity
from torch_ocl_compile.decompositions.forms import FORMS
from torch_ocl_compile.eager import reasons
from torch_ocl_compile.tuning import table

# Prints what it computed, what it counted, and which modules of the compiler it has.
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
keep("fallback", torch.linalg.eigvals(x[:, :3].contiguous()), torch.stft(torch.ones(64, device=device), 16, return_complex=True).abs())
keep("refused", refused(lambda: x @ x))
modules = [m for m in ("torch._dynamo", "torch._inductor", "sympy", "torch_ocl_compile.lowering") if m in sys.modules]
print(json.dumps({"found": found, "modules": modules, "fallbacks": torch.ocl.fallback_counts(), "reasons": eager.reasons(),
                  **_C.eager_counters(), "cache": _C.exec.cache_stats(), "built": _C.exec.build_counters()}))
"""


def run(device: str, folder: Path, program: str = PROGRAM, **env: str) -> dict[str, Any]:
    status, out, err = run_python(program, TEST_DEVICE=device, TORCH_OCL_CACHE_DIR=str(folder), **env)
    assert status == 0, err[-3000:]
    return json.loads(out.splitlines()[-1])


REPORTS = ("found", "fallbacks", "reasons")


def assert_same(second: dict[str, Any], first: dict[str, Any]) -> None:
    """Values, and what ran on the CPU and why."""
    for report in REPORTS:
        assert second[report] == first[report]


@pytest.fixture(scope="module")
def written(ocl_device: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """What a process with an empty cache says, and the cache that it leaves."""
    folder = tmp_path_factory.mktemp("stored")
    return run(ocl_device, folder), folder


def copied(folder: Path, to: Path) -> sqlite3.Connection:
    """The cache of `folder`, in `to`."""
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


@pytest.mark.sampled()  # on the first device: it is the file that is damaged
def test_damaged_entries(ocl_device: str, written: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    """Each is compiled anew and stored again."""
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


@pytest.fixture
def own_cache(tmp_path: Path) -> Any:
    """A cache of the test's own, and no plans in memory."""
    with config.override(cache_dir=str(tmp_path)):
        config.configure_core()
        table.forget()
        _C.forget_eager_plans()
        yield tmp_path
    config.configure_core()
    table.forget()
    _C.forget_eager_plans()


def counted(call: Any) -> tuple[Any, dict[str, int]]:
    """Its result, and what it added to the counters."""
    before = _C.eager_counters()
    result = call()
    return result, {name: count - before[name] for name, count in _C.eager_counters().items()}


def asked_anew(call: Any) -> tuple[Any, dict[str, int]]:
    """As in another process."""
    _C.forget_eager_plans()
    return counted(call)


def test_entries_that_end_too_early(ocl_device: str, own_cache: Path) -> None:
    """With the right checksum, as another program might leave them; and entries with too much."""
    x = torch.arange(6.0).to(ocl_device)
    expected = torch.arange(6.0) * 2.5 + 1
    _, counters = asked_anew(lambda: x * 2.5 + 1)
    assert counters == {"compiled": 2, "from_cache": 0, "stored": 2, "rejected": 0}
    whole = _C.testing.cache_entries("eager")
    longest = max(len(entry) for entry in whole.values())
    for size in [*range(0, longest, 97), longest - 1, longest + 1]:
        for key, entry in whole.items():
            _C.testing.store_cache_entry("eager", key, (entry + b"!")[:size] or b"?")
        result, counters = asked_anew(lambda: x * 2.5 + 1)
        torch.testing.assert_close(result.cpu(), expected)
        assert counters["rejected"] == counters["compiled"] > 0, (size, counters)
        assert _C.testing.cache_entries("eager") == whole  # stored again
    assert asked_anew(lambda: x * 2.5 + 1)[1]["compiled"] == 0


def test_entries_of_other_code(
    ocl_device: str, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edited source, another build and another torch have entries of their own."""
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
    """What is loaded may be older or newer than what is on the disk: nothing is stored or used."""
    x = torch.ones(5, device=ocl_device)
    assert asked_anew(lambda: x.sinh())[1]["stored"] == 1
    monkeypatch.setattr(identity, "_LOADED", 0.0)
    assert (
        asked_anew(lambda: x.cosh())[1]["stored"] == 0
    )  # what was compiled may be of another source than the key says
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
    with config.override(dump=str(own_cache / "dump")):  # it shows the trace
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
    """In the process's table too: a trace asks for them."""
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
    """Their meaning may change with a version that nobody asks for."""
    with torch.library._scoped_library("stored_plans", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        x = torch.arange(3.0).to(ocl_device)
        result, counters = asked_anew(lambda: torch.ops.stored_plans.twice(x))
    assert result.tolist() == [0, 2, 4] and counters["stored"] == 0
    assert "stored_plans::twice" in reasons()


def test_formulas_of_others_are_not_stored(ocl_device: str, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A decomposition that a program has changed is for this program."""
    x = torch.ones(5, device=ocl_device)
    monkeypatch.setitem(FORMS, "aten.sinh.out", lambda a, *, out: out.copy_(a + 41))
    result, counters = asked_anew(lambda: x.sinh())
    assert result.tolist() == [42] * 5 and counters["compiled"] == 1 and counters["stored"] == 0
    monkeypatch.undo()
    result, counters = asked_anew(lambda: x.sinh())
    torch.testing.assert_close(result.cpu(), torch.ones(5).sinh())
    assert counters["stored"] == 1


def test_a_choice_that_was_measured_later(ocl_device: str, own_cache: Path) -> None:
    """The stored plan's product takes it."""
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
    """An entry begins with the format, what it is, the reason and the graph; texts follow their lengths."""
    texts, at = [], 0
    for between in (1, 0, 0):
        (size,) = struct.unpack_from("Q", entry, at)
        texts.append(entry[at + 8 : at + 8 + size].decode())
        at += 8 + size + between
    return texts[2]


FULL = """
import json, os, resource, torch
from torch_ocl_compile import _C
x = torch.arange(5.0).to(os.environ["TEST_DEVICE"])
assert (x + 1).tolist() == [1, 2, 3, 4, 5]
MAKE_FULL
assert (x * 3).tolist() == [0, 3, 6, 9, 12]
assert (x - 1).tolist() == [-1, 0, 1, 2, 3]
print(json.dumps({**_C.eager_counters(), "problem": _C.exec.cache_stats()["problem"]}))
"""
# The disk is full, or read-only: a write fails. Or another process writes and does not end.
HINDRANCES = {
    # The runtime's files are smaller than 3 MB.
    "no room": """
_C.testing.store_cache_entry("other", "large", "a" * 3_000_000)
size = os.path.getsize(os.path.join(os.environ["TORCH_OCL_CACHE_DIR"], "cache.sqlite-wal"))
resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
""",
    "locked": """
import sqlite3
other = sqlite3.connect(os.path.join(os.environ["TORCH_OCL_CACHE_DIR"], "cache.sqlite"), isolation_level=None)
other.execute("BEGIN IMMEDIATE")
""",
}


@pytest.mark.parametrize("how", HINDRANCES)
@pytest.mark.sampled()
def test_a_cache_that_takes_no_more(ocl_device: str, tmp_path: Path, how: str) -> None:
    """Between the lookup and the store."""
    ended = run(ocl_device, tmp_path, FULL.replace("MAKE_FULL", HINDRANCES[how]))
    assert ended["problem"], "nothing failed"
    assert ended["compiled"] == 3
    second = run(ocl_device, tmp_path, FULL.replace("MAKE_FULL", ""))
    assert second["problem"] == "" and 1 <= second["from_cache"] < 3
    assert run(ocl_device, tmp_path, FULL.replace("MAKE_FULL", ""))["compiled"] == 0


@pytest.mark.sampled()
def test_processes_that_store_at_once(ocl_device: str, tmp_path: Path) -> None:
    """The program checks its results."""
    program = FULL.replace("MAKE_FULL", "")
    with ThreadPoolExecutor(4) as pool:
        for ended in pool.map(lambda _: run(ocl_device, tmp_path, program), range(4)):
            assert ended["problem"] == "" and ended["compiled"] + ended["from_cache"] == 3
    assert run(ocl_device, tmp_path, program)["compiled"] == 0


AFTERWARDS = """
import json, os, sys, threading, torch
from torch_ocl_compile import _C
device = os.environ["TEST_DEVICE"]
x = torch.arange(6.0, device=device)
results = []
threads = [threading.Thread(target=lambda k=k: results.append((x * k - 1).exp().sum().item())) for k in range(1, 5)]
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


def test_torch_compile_and_threads_afterwards(ocl_device: str, tmp_path: Path) -> None:
    """The compiler is imported late, and then is all there."""
    first = run(ocl_device, tmp_path, AFTERWARDS)
    second = run(ocl_device, tmp_path, AFTERWARDS)
    assert second["results"] == first["results"]
    expected = sorted((torch.arange(6.0) * k - 1).exp().sum().item() for k in range(1, 5))
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
    """Parent and child use one cache."""
    assert run(ocl_device, tmp_path, FORKED, TEST_COMPILED="2")["right"]
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
    """They are not compiled as ops, and may be all that a process does."""
    first = run(ocl_device, tmp_path, COPIES)
    second = run(ocl_device, tmp_path, COPIES)
    assert first["built"] > 0 and second["built"] == (first["built"] if first["unkept"] else 0)

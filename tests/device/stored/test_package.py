# tests/device/stored/test_package.py: a packaged model computes what PyTorch does, refuses wrong arguments, and keeps its state.
import copy
import sqlite3
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ocl_run
from torch_ocl_compile import _C, package
from torch_ocl_compile.cli import main

BATCH = torch.export.Dim("batch", min=2, max=64)


class Net(nn.Module):
    """Layers of several families, a counter as state, and results of several kinds."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 32)
        self.norm = nn.BatchNorm1d(32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.conv = nn.Conv2d(3, 4, 3)
        self.register_buffer("calls", torch.zeros(4))

    def forward(self, x, image, factor):
        self.calls.add_(1)
        h = F.gelu(self.norm(self.linear(x)))
        a, _ = self.attention(h[None], h[None], h[None], need_weights=False)
        return {
            "a": a.transpose(1, 2),
            "calls": self.calls[:2],
            "image": self.conv(image) * factor,
            "x": x,
            "n": 2 * x.shape[0],
        }


def network():
    torch.manual_seed(0)
    net = Net().eval()
    return net, (torch.randn(6, 16), torch.randn(2, 3, 8, 8), 3)


@pytest.fixture
def index(ocl_device):
    """The number of the device in ocl_run.devices()."""
    return torch.device(ocl_device).index or 0


@pytest.fixture
def gives_binaries(index):
    """Skips a test of binaries in packages on PoCL, which gives none."""
    if "portable" in ocl_run.devices()[index].lower():
        pytest.skip("PoCL keeps its binaries to itself")


@pytest.fixture
def saved(tmp_path):
    net, args = network()
    package.save(tmp_path / "net.ocl", net, args, dynamic_shapes={"x": {0: BATCH}, "image": None, "factor": None})
    return tmp_path / "net.ocl"


def load(path, index, **options):
    return ocl_run.load(path, device=index, **options)


def test_results(saved, index):
    net, (x, image, factor) = network()
    model = load(saved, index)
    for rows in (6, 9, 64):
        x = torch.randn(rows, 16)
        expected = net(x, image, factor)
        for args in ((x, image, factor), (x.numpy(), image.numpy(), factor)):
            found = model(*args)
            assert list(found) == list(expected)
            assert found["n"] == 2 * rows
            for name in ("a", "image", "x"):
                torch.testing.assert_close(torch.as_tensor(found[name]), expected[name].detach())
    assert found["calls"].tolist() == [6, 6]
    model.reset()
    assert model(x, image, factor)["calls"].tolist() == [1, 1]


def test_description(saved, index):
    forward = load(saved, index).forward
    assert forward.arguments == [
        ("x", "float32 [s0, 16]"),
        ("image", "float32 [2, 3, 8, 8]"),
        ("factor", "int, always 3"),
    ]
    assert [name for name, _ in forward.results] == ["a", "calls", "image", "x", "n"]
    assert forward.results[-1] == ("n", "int s0*2")
    bounds = [f"the size of dimension 0 of x must be at {bound}" for bound in ("least 2", "most 64")]
    assert forward.conditions == bounds
    assert forward.results[0][1] == "float32 [1, 32, s0]"


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda x, i, f: (x[:1], i, f), "the size of dimension 0 of x must be at least 2"),
        (lambda x, i, f: (x.repeat(20, 1), i, f), "must be at most 64"),
        (lambda x, i, f: (x.double(), i, f), r"argument 0 \(x\) is f64 \[6, 16\]; expected f32 \[s0, 16\]"),
        (lambda x, i, f: (x[:, :8], i, f), r"argument 0 \(x\) is f32 \[6, 8\]"),
        (lambda x, i, f: (x, i, 4), "is the integer 4; expected the integer 3"),
        (lambda x, i, f: (x, i, i), "expected the integer 3"),
        (lambda x, i, f: (x,), "takes 3 arguments, not 1"),
        (lambda x, i, f: (np.zeros((6, 16), "complex64"), i, f), "dtype complex64"),
    ],
)
def test_wrong_arguments(saved, index, change, message):
    model = load(saved, index)
    _, args = network()
    with pytest.raises(ocl_run.PackageError, match=message):
        model(*change(*args))
    model(*args)


class Cache(nn.Module):
    """A layer of attention with a cache of keys and values."""

    def __init__(self, steps):
        super().__init__()
        self.qkv = nn.Linear(16, 48)
        self.register_buffer("keys", torch.zeros(1, steps, 16))
        self.register_buffer("values", torch.zeros(1, steps, 16))

    def step(self, x, position):
        q, k, v = self.qkv(x).chunk(3, -1)
        self.keys.index_copy_(1, position, k)
        self.values.index_copy_(1, position, v)
        mask = torch.arange(self.keys.shape[1], device=x.device) <= position[:, None]
        return F.scaled_dot_product_attention(q, self.keys, self.values, attn_mask=mask)


class Prefill(nn.Module):
    def __init__(self, cache):
        super().__init__()
        self.cache = cache

    def forward(self, x):
        return self.cache.step(x, torch.arange(x.shape[1], device=x.device))


class Decode(Prefill):
    def forward(self, x, position):
        return (self.cache.step(x, position), position + 1)


def test_methods_share_weights_and_state(tmp_path, index):
    torch.manual_seed(0)
    cache = Cache(12).eval()
    tokens = torch.randn(1, 8, 16)
    whole = Prefill(copy.deepcopy(cache))(tokens).detach()
    path = tmp_path / "cache.ocl"
    length = torch.export.Dim("length", min=2, max=12)
    package.save(
        path,
        {
            "prefill": package.Method(Prefill(cache), (tokens[:, :5],), dynamic_shapes={"x": {1: length}}),
            "decode": package.Method(Decode(cache), (tokens[:, 5:6], torch.tensor([5]))),
        },
    )
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM tensors").fetchone() == (4,)
        assert db.execute("SELECT sum(written) FROM tensors").fetchone() == (2,)
    model = load(path, index)
    torch.testing.assert_close(model.prefill(tokens[:, :5]), whole[:, :5])
    position = torch.tensor([5])
    for i in range(5, 8):
        found, position = model.decode(tokens[:, i : i + 1], position)
        torch.testing.assert_close(found, whole[:, i : i + 1])
    assert position.tolist() == [8]
    with pytest.raises(ocl_run.PackageError, match="several methods: prefill, decode"):
        model(tokens)


class Random(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x), torch.randn(4, device=x.device)


def test_random_numbers(tmp_path, index):
    package.save(tmp_path / "random.ocl", Random().eval(), (torch.zeros(1000),))
    model = load(tmp_path / "random.ocl", index)
    first, second = model(torch.zeros(1000)), model(torch.zeros(1000))
    assert not torch.equal(first[0], second[0]) and 0.4 < first[0].mean() < 0.6
    model.seed(0)
    assert torch.equal(model(torch.zeros(1000))[0], first[0])


def test_types_without_torch(tmp_path, index):
    """Half-precision weights, integers and booleans; results of bfloat16 reach numpy as float32."""

    class Types(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.linspace(-1, 1, 32).reshape(4, 8).bfloat16())

        def forward(self, ids, mask):
            return F.embedding(ids, self.weight), ids.where(mask, 0), mask.logical_not()

    module, ids, mask = Types().eval(), torch.tensor([[1, 3]]), torch.tensor([[True, False]])
    package.save(tmp_path / "types.ocl", module, (ids, mask))
    rows, chosen, inverted = load(tmp_path / "types.ocl", index)(ids.numpy(), mask.numpy())
    np.testing.assert_array_equal(rows, module(ids, mask)[0].float().detach().numpy())
    assert chosen.tolist() == [[1, 0]] and chosen.dtype == np.int64 and inverted.tolist() == [[False, True]]


def test_no_torch_is_imported(saved):
    program = f"""
import sys, numpy, ocl_run
found = ocl_run.load({str(saved)!r})(numpy.zeros((2, 16), "float32"), numpy.zeros((2, 3, 8, 8), "float32"), 3)
assert found["a"].shape == (1, 32, 2) and "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.usefixtures("gives_binaries")
def test_binaries(tmp_path, ocl_device, index):
    net, args = network()
    path = tmp_path / "built.ocl"
    package.save(path, net, args, devices=[str(index)])
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM kernels").fetchone()[0] > 3
        # A binary that no device takes: only a reader that trusts the package looks at it.
        db.execute("UPDATE kernels SET binary = x'00', checksum = checksum + 1")
    for trusted in (False, True):
        found = load(path, index, cache=tmp_path / f"{trusted}.sqlite", trust_binaries=trusted)(*args)
        torch.testing.assert_close(found["a"], net(*args)["a"].detach())


class Scaled(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return self.factor * x + x.sum(0)


class FromSizes(nn.Module):
    """Numbers that are computed from sizes, as interpolated embeddings and scaled attention have them."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Parameter(torch.randn(1, 3, 5, 5))

    def forward(self, x):
        n, m = x.shape[2:]
        larger = F.interpolate(self.embedding, size=(n, m), mode="bicubic")
        smaller = F.interpolate(x, size=(4, 4), mode="bilinear", align_corners=True)
        return x + larger, smaller, x * n**-0.5 + n / (m + 1), torch.full((n, 2), 1.5 / n) * max(n, m)


def test_numbers_from_sizes(tmp_path, index):
    torch.manual_seed(0)
    net, x = FromSizes().eval(), torch.randn(2, 3, 6, 9)
    shapes = {"x": {2: torch.export.Dim("n", min=4, max=64), 3: torch.export.Dim("m", min=4, max=64)}}
    package.save(tmp_path / "sizes.ocl", net, (x,), dynamic_shapes=shapes)
    model = load(tmp_path / "sizes.ocl", index)
    for given in (x, torch.randn(2, 3, 11, 7)):
        for found, expected in zip(model(given), net(given), strict=True):
            torch.testing.assert_close(found, expected.detach(), atol=1e-5, rtol=1e-5)


def plan_of(path):
    """Returns key and text of the plan beside the kernels of a package."""
    with sqlite3.connect(path) as db:
        [plan] = [(key, text) for key, text in db.execute("SELECT key, binary FROM kernels") if text[:1].isdigit()]
    return plan


@pytest.mark.usefixtures("gives_binaries")
def test_stored_plans(tmp_path, ocl_device, index):
    x = np.arange(12, dtype="float32").reshape(4, 3)
    paths = [tmp_path / "2.ocl", tmp_path / "3.ocl"]
    for path, factor in zip(paths, (2, 3), strict=True):
        args, shapes = (torch.ones(6, 3),), {"x": {0: BATCH}}
        package.save(path, Scaled(factor).eval(), args, dynamic_shapes=shapes, devices=[str(index)])
    (key, plan), (_, other) = map(plan_of, paths)

    def found(name, trusted=True):
        return load(paths[0], index, cache=tmp_path / name, trust_binaries=trusted)(x)

    def replace(text):
        checksum = _C.exec.package_checksum(text)
        with sqlite3.connect(paths[0]) as db:
            db.execute("UPDATE kernels SET binary = ?, checksum = ? WHERE key = ?", (text, checksum, key))

    np.testing.assert_allclose(found("same"), 2 * x + x.sum(0))
    # The plan of the other package, under the key of this one, shows who uses it.
    with sqlite3.connect(paths[1]) as db:
        db.execute("ATTACH ? AS this", (str(paths[0]),))
        db.execute("INSERT OR IGNORE INTO this.kernels SELECT * FROM main.kernels")
    replace(other)
    np.testing.assert_allclose(found("trusted"), 3 * x + x.sum(0))
    np.testing.assert_allclose(found("untrusted", trusted=False), 2 * x + x.sum(0))
    for text in (plan[: len(plan) // 2], b"0 ", b"99999999999 "):
        replace(text)
        np.testing.assert_allclose(found(f"{len(text)} bytes"), 2 * x + x.sum(0))
    replace(plan)
    with sqlite3.connect(paths[0]) as db:
        db.execute("DELETE FROM kernels WHERE key != ?", (key,))
    np.testing.assert_allclose(found("kernels are missing"), 2 * x + x.sum(0))


@pytest.mark.parametrize(
    "sql, message",
    [
        ("PRAGMA user_version=99", "has format 99; this library reads format 1"),
        ("PRAGMA application_id=5", "is no package"),
        ("DROP TABLE results", "it has no table results"),
        ("UPDATE parts SET data = zeroblob(length(data))", "another checksum"),
        ("DELETE FROM parts WHERE storage = 2", "a part of a tensor is missing"),
        ("UPDATE methods SET graph = graph || ' '", "another checksum"),
        ("DELETE FROM inputs WHERE position = 0", "a row of method forward is missing"),
        ("UPDATE tensors SET first = 10", "reaches beyond its storage"),
        ("UPDATE tensors SET sizes = '99999999999, 99999999999'", "cannot be used"),
        ("UPDATE inputs SET number = number + 50 WHERE kind = 'tensor'", "no tensor of the package"),
        ("UPDATE symbols SET argument = 7", "a size symbol has no argument"),
        ("UPDATE results SET value = '50'", "does not exist"),
        ("UPDATE results SET kind = 'other'", "the word 'other' is unknown"),
        ("UPDATE arguments SET sizes = 's9, 16'", "unknown symbol"),
        ("UPDATE conditions SET expression = '1 +'", "cannot be used: method forward"),
    ],
)
def test_damaged_files(saved, index, sql, message):
    with sqlite3.connect(saved) as db:
        db.executescript(sql)
    with pytest.raises(ocl_run.PackageError, match=message):
        load(saved, index).synchronize()


def test_other_files(tmp_path, saved, index):
    for name, data, message in (
        ("missing", None, "cannot be opened"),
        ("text", b"this is no SQLite file" * 100, "is no package"),
        ("empty", b"", "is no package"),
        ("half", saved.read_bytes()[: saved.stat().st_size // 2], "is damaged: it is cut off"),
    ):
        if data is not None:
            (tmp_path / name).write_bytes(data)
        with pytest.raises(ocl_run.PackageError, match=message):
            load(tmp_path / name, index).synchronize()


def test_commands(tmp_path, ocl_device, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model_of_test_package.py").write_text(
        "import torch\ndef make(): return torch.nn.Linear(6, 3), torch.ones(2, 6)\n"
    )
    try:
        assert main(["package", "model_of_test_package:make", "--output", "linear.ocl"]) == 0
    finally:
        sys.modules.pop("model_of_test_package", None)
    assert main(["package", "--describe", "linear.ocl", "--json"]) == 0
    shown = capsys.readouterr().out
    assert '"float32 [2, 6]"' in shown and '"conditions": []' in shown
    np.save("x.npy", np.ones((2, 6), "float32"))
    assert main(["run", "linear.ocl", "--input", "x.npy", "--output", "y.npy", "--repeat", "3"]) == 0
    assert "a call takes" in capsys.readouterr().out
    np.testing.assert_array_equal(np.load("y.npy"), ocl_run.load("linear.ocl")(np.ones((2, 6), "float32")))
    for arguments, status, message in (
        (["run", "linear.ocl", "--input", "3"], 1, "is the integer 3; expected f32 [2, 6]"),
        (["run", "x.npy", "--input", "x.npy"], 1, "is no package"),
        (["run", "linear.ocl", "--input", "none.npy"], 1, "none.npy cannot be read"),
        (["package", "linear"], 2, "MODULE:FUNCTION"),
    ):
        assert main(arguments) == status
        assert message in capsys.readouterr().err

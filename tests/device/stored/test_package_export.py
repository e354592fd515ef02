# tests/device/stored/test_package_export.py: sizes that are expressions, containers in containers, and models that cannot be packaged.
from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import ocl_run
from torch_ocl_compile import package
from torch_ocl_compile.errors import ConfigError, UnsupportedError


class Calls(nn.Module):
    """A module that calls a function of one or two arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, x: Any, y: Any = None) -> Any:
        return self.function(x) if y is None else self.function(x, y)


def saved(folder: Path, device: str, function: Callable[..., Any], *args: Any, shapes: Any = None) -> ocl_run.Model:
    package.save(folder / "model.ocl", Calls(function), args, dynamic_shapes=shapes)
    return ocl_run.load(folder / "model.ocl", device=torch.device(device).index or 0)


def pairs(x: Tensor) -> Any:
    return x.reshape(x.shape[0] // 2, 2, -1).sum(1), x * x.shape[0] / 2


def after_the_first(x: Tensor) -> Any:
    return x[1:] + x.shape[0], x.T @ x, torch.cat([x, x])


def beside_half(x: Tensor, y: Tensor) -> Any:
    return x[::2] + y, x.reshape(-1, 6) * y.repeat(1, 2)


def beside_another(x: Tensor, y: Tensor) -> Any:
    return x.reshape(-1, 6) + y[1:].repeat(1, 2), x.shape[0] + y.shape[0]


N = torch.export.Dim("n", min=2, max=32)
# Name -> function, the sizes of its arguments as expressions of a Dim, wrong sizes, and what their error says.
DERIVED: dict[str, tuple[Callable[..., Any], list[Callable[[Any], Any]], list[int], str]] = {
    "2n": (pairs, [lambda n: 2 * n], [7], "the size of dimension 0 of x must be 2 [*] n; but x is f32 .7, 3."),
    "too large": (pairs, [lambda n: 2 * n], [66], "the size of dimension 0 of x must be at most 64"),
    "3n - 1": (after_the_first, [lambda n: 3 * n - 1], [9], "the size of dimension 0 of x must be 3 [*] n - 1"),
    "2n and n": (beside_half, [lambda n: 2 * n, lambda n: n], [7, 3], "x. is f32 .7, 3.; expected f32 .s0[*]2, 3."),
    "2n and n + 1": (
        beside_another,
        [lambda n: 2 * n, lambda n: n + 1],
        [6, 5],
        "y. is f32 .5, 3.; expected f32 .s0 // 2 . 1",
    ),
}


@pytest.mark.parametrize("name", DERIVED)
def test_sizes_that_are_expressions(tmp_path: Path, ocl_device: str, name: str) -> None:
    function, sizes, wrong, message = DERIVED[name]
    rows = [[torch.randn(size(n), 3) for size in sizes] for n in (3, 2, 5, 32)]
    model = saved(tmp_path, ocl_device, function, *rows[0], shapes=tuple({0: size(N)} for size in sizes))
    for args in rows:
        for found, expected in zip(model(*args), function(*args), strict=True):
            torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    with pytest.raises(ocl_run.PackageError, match=message):
        model(*(torch.randn(size, 3) for size in wrong))


COMPUTED: dict[str, Callable[[Tensor], Tensor]] = {
    "7n // 10": lambda x: x[:, : 7 * x.shape[1] // 10].sum(1),
    "interpolated": lambda x: F.interpolate(x[:, None], scale_factor=1.5, mode="linear"),
    "nearest": lambda x: F.interpolate(x[:, None, None], scale_factor=(1, 0.75)),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_sizes_that_are_computed(tmp_path: Path, ocl_device: str, name: str) -> None:
    function, x = COMPUTED[name], torch.randn(2, 8)
    shapes = ({1: torch.export.Dim("n", min=4, max=256)},)
    checked = torch.export.export(
        Calls(function), (x,), dynamic_shapes=shapes, prefer_deferred_runtime_asserts_over_guards=True
    )
    package.save(tmp_path / "model.ocl", checked)
    model = ocl_run.load(tmp_path / "model.ocl", device=torch.device(ocl_device).index or 0)
    for n in (4, 9, 8, 61):
        x = torch.randn(2, n)
        torch.testing.assert_close(model(x), function(x), atol=1e-4, rtol=1e-4)


# Function -> what the error says.
NOT_COMPUTED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "guards": (
        COMPUTED["7n // 10"],
        r"Constraints violated \(n\).*do:    .*prefer_deferred_runtime_asserts_over_guards",
    ),
    "decimals": (
        lambda x: F.interpolate(x[:, None], scale_factor=1.7, mode="linear"),
        r"TruncToInt\(1.7.* has no form in integers.*do:    compute the size with integers, such as 7 \* n // 10",
    ),
}


@pytest.mark.parametrize("name", NOT_COMPUTED)
def test_sizes_that_cannot_be_computed(tmp_path: Path, name: str) -> None:
    function, message = NOT_COMPUTED[name]
    shapes = ({1: torch.export.Dim("n", min=4, max=256)},)
    with pytest.raises(UnsupportedError, match=f"(?s)^method forward cannot be packaged: .*{message}"):
        package.save(tmp_path / "no.ocl", Calls(function), (torch.randn(2, 8),), dynamic_shapes=shapes)


def test_containers_in_containers(tmp_path: Path, ocl_device: str) -> None:
    model = saved(tmp_path, ocl_device, lambda x: {"d": [x, x + 1], 3: (x * 2, {"k": None})}, torch.ones(2))
    assert [name for name, _ in model.forward.results] == ["d.0", "d.1", "3.0", "3.1.k"]
    found = model(torch.ones(2))
    assert list(found) == ["d", 3] and isinstance(found["d"], list) and isinstance(found[3], tuple)
    assert found["d"][1].tolist() == [2, 2] and found[3][0].tolist() == [2, 2] and found[3][1] == {"k": None}


CHOOSES = r".*do:    compute with tensors whose sizes are known; torch.where\(condition, a, b\)"
# Function -> what the error says. Each error names the method and the line of the model.
REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "item": (lambda x: x * x.sum().item(), r"item\(\) returns a number that depends on the values" + CHOOSES),
    "if": (lambda x: x if x.sum() > 0 else -x, "the values of a tensor decide what the model does next" + CHOOSES),
    "cond": (lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)), "cond decides at run time" + CHOOSES),
    "nonzero": (lambda x: torch.nonzero(x) * 2, "aten.nonzero.default returns a tensor whose size depends" + CHOOSES),
    "mask": (lambda x: x[x > 0].sum(), "aten.index.Tensor returns a tensor whose size depends on" + CHOOSES),
    "no kernel": (lambda x: torch.linalg.eigvals(x).real, "ocl.eig.default runs outside of compiled graphs"),
    "complex": (lambda x: torch.fft.fft(x), "returns a tensor of complex numbers.*view_as_real"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_cannot_be_packaged(tmp_path: Path, name: str) -> None:
    function, message = REFUSED[name]
    with pytest.raises(UnsupportedError, match=f"(?s)^method forward cannot be packaged: .*{message}") as raised:
        package.save(tmp_path / "no.ocl", Calls(function), (torch.eye(8),))
    assert "test_package_export.py" in str(raised.value)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "module, args, error, message",
    [
        (Calls(lambda x: x.add_(1)), (torch.ones(2),), UnsupportedError, "writes into its argument x"),
        (
            Calls(lambda x, f: x * f),
            (torch.ones(2), 1.5),
            UnsupportedError,
            r"argument y is 1.5.*\n  do: make it a constant",
        ),
        (
            Calls(lambda x: (x, "text")),
            (torch.ones(2),),
            UnsupportedError,
            "returns 'text'; results .* are tensors and numbers",
        ),
        (nn.Linear(2, 2).train(), (torch.ones(2),), ConfigError, r"training mode\n  do: model.eval\(\)"),
    ],
    ids=["writes", "argument", "result", "training"],
)
def test_arguments_and_results_that_cannot_be_packaged(
    tmp_path: Path, module: nn.Module, args: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        package.save(tmp_path / "no.ocl", module, args)
    assert os.listdir(tmp_path) == []


class Normalised(nn.Module):
    """Batch norms with and without weights, of three ranks; one shares its statistics with a result."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norms = nn.ModuleList(
            [nn.BatchNorm2d(4), nn.BatchNorm2d(4, affine=False), nn.BatchNorm1d(4), nn.BatchNorm1d(4)]
        )
        self.rough = nn.BatchNorm2d(4).bfloat16()
        for norm in [*self.norms, self.rough]:
            for tensor in norm.state_dict().values():
                tensor.copy_(torch.rand(tensor.shape) + 0.5)

    def forward(self, x: Tensor) -> Any:
        a, b, c, d = self.norms
        y = b(a(x).relu())
        return y, c(y.flatten(2)), d(y[:, :, 0, 0]), self.rough(x.bfloat16()), d.running_var * 2


def test_scales_of_batch_norms_are_computed_when_a_package_is_saved(tmp_path: Path, ocl_device: str) -> None:
    net, x = Normalised().eval(), torch.randn(2, 4, 3, 5)
    package.save(tmp_path / "model.ocl", net, (x,))
    found = ocl_run.load(tmp_path / "model.ocl", device=torch.device(ocl_device).index or 0)(x)
    half = net.rough.double()(x.bfloat16().double())
    net.rough.bfloat16()
    net.norms.double()
    a, b, c, d = net.norms
    y = b(a(x.double()).relu())
    torch.testing.assert_close(found[3].double(), half, rtol=2**-8, atol=2**-8)
    for single, double in zip(
        (*found[:3], found[4]), (y, c(y.flatten(2)), d(y[:, :, 0, 0]), d.running_var * 2), strict=True
    ):
        torch.testing.assert_close(single.double(), double.detach(), rtol=1e-5, atol=2e-6)
    with sqlite3.connect(tmp_path / "model.ocl") as db:
        ((graph,),) = db.execute("SELECT graph FROM methods").fetchall()
        names = {name for (name,) in db.execute("SELECT name FROM tensors")}
    assert graph.count("rsqrt") == 1  # of bfloat16
    assert "norms.0.running_mean" in names and not names & {
        "norms.0.running_var",
        "norms.0.weight",
        "norms.1.running_var",
    }


def test_statistics_that_a_method_writes_are_read_by_the_others(tmp_path: Path, ocl_device: str) -> None:
    net, x = nn.Sequential(nn.BatchNorm1d(4)), torch.randn(8, 4) * 3
    step = package.TrainingStep(net, lambda net, x: net(x).square().mean(), (x,), package.sgd(0.1))
    package.save(
        tmp_path / "model.ocl", {"train": package.Method(step, (x,)), "predict": package.Method(net.eval(), (x,))}
    )
    model = ocl_run.load(tmp_path / "model.ocl", device=torch.device(ocl_device).index or 0)
    before = model.predict(x)
    model.train(x)
    net.train()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    net(x).square().mean().backward()
    optimizer.step()
    found = model.predict(x)
    torch.testing.assert_close(found, net.eval()(x).detach(), rtol=1e-5, atol=1e-5)
    assert not torch.allclose(found, before)


def rebuilt(x: Tensor) -> list[Tensor]:
    """Returns the eigenvalues of Hermitian matrices, and these matrices from eigenvalues and vectors."""
    made = []
    for a in (x + x.mT, torch.complex(x + x.mT, x - x.mT)):
        values, vectors = torch.linalg.eigh(a)
        whole = (vectors * values[..., None, :]) @ vectors.mH
        made += [values, torch.view_as_real(whole) if whole.is_complex() else whole]
    return made


FACTORISATIONS: dict[str, Callable[[Tensor], Any]] = {
    "eigh": lambda x: rebuilt(x[..., :7, :7]),
    "singular values": lambda x: [torch.linalg.svdvals(x[..., :9]), torch.linalg.svdvals(torch.complex(x, x + 1)[..., :5, :])],
    "pinv": lambda x: [torch.linalg.pinv(x[..., :10])],
    "solve": lambda x: [torch.linalg.solve_ex(x, x[..., :2] * 2)[0], torch.linalg.lu_factor_ex(x)[1]],
    "cholesky": lambda x: [torch.linalg.cholesky_ex(x @ x.mT)[0]],
}  # fmt: skip


@pytest.mark.parametrize("name", FACTORISATIONS)
def test_factorisations_have_their_steps_written_out(tmp_path: Path, ocl_device: str, name: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 20, 20, dtype=torch.float64) + 5 * torch.eye(20)
    function = FACTORISATIONS[name]
    for ours, exact in zip(saved(tmp_path, ocl_device, function, x)(x), function(x), strict=True):
        torch.testing.assert_close(ours, exact, rtol=1e-10, atol=1e-10)

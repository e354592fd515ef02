# tests/no_device/graphs/test_recipe.py: what a recipe passes to its plan and returns, before and after it is stored.
from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from torch_ocl_compile._C import Recipe, ir
from torch_ocl_compile.errors import InternalError

Result, Source = Recipe.Result, Recipe.Source
X = torch.arange(6.0).reshape(2, 3)


class Plan:
    def run(self, given: list[Any]) -> list[torch.Tensor]:
        self.given = given
        return [torch.tensor(7.0)]


def recipe() -> Recipe:
    """Returns a recipe with symbols, sources and results of every kind that needs no device."""
    builder = ir.Builder()
    sizes = [builder.size_symbol(ir.Range(0, 99)) for _ in range(3)]
    x = builder.input(ir.DType.kF32, sizes[:2], [sizes[2], ir.IndexExpr(1)])
    for _ in range(3):
        builder.input(ir.DType.kF32, [ir.IndexExpr(2)], [ir.IndexExpr(1)])
    builder.output(x, [])
    made = Recipe(Recipe.Kind.PLAN)
    made.graph = builder.finish()
    made.symbols = [Recipe.Symbol(0, 0), Recipe.Symbol(2), Recipe.Symbol(0, 0, is_stride=True)]
    made.sources = [Source.tensor(0), Source.numbers([1, 4], torch.float64), Source.moved(4), Source.constant(0)]
    product = sizes[0] * sizes[1] + sizes[2]
    made.results = [Result.output(0), Result.input(1), Result.leaf(3), Result(), Result.size(product), Result.leaf(0)]
    made.reason, made.returned, made.generator = "no reason", [(True, 2), (False, 1)], 5
    return made


@pytest.mark.parametrize("stored", [False, True])
def test_call(stored: bool) -> None:
    made = recipe()
    if stored:
        made = pickle.loads(pickle.dumps(made))
        assert (made.reason, made.returned, made.generator) == ("no reason", [(True, 2), (False, 1)], 5)
    made.constants = [torch.tensor(3.0)]
    plan, opaque = Plan(), object()
    arguments = [X, 0.1, 5, opaque, torch.tensor(0.5)]
    assert made.size_values(arguments) == [2, 5, 3]
    output, numbers, third, none, size, first = made.call(plan, arguments)
    assert not arguments, "the call empties the list"
    assert plan.given[:3] == [2, 5, 3] and plan.given[3] is X
    assert [tensor.tolist() for tensor in plan.given[4:]] == [[0.1, 0.5], 0.5, 3.0]
    assert output.item() == 7.0 and numbers is plan.given[4] and third is opaque and none is None
    assert size == 13 and type(size) is int and first is X


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("form", [(True, False, False), (True, True, False), (True, False, True), (True, True, True)])
def test_bits(form: tuple[bool, bool, bool], stored: bool) -> None:
    """A tensor's numbers reach the plan in the form that was traced, whatever bits the tensor has."""
    builder, z = ir.Builder(), torch.complex(X, X + 1)
    x = builder.input(ir.DType.kF32, [ir.IndexExpr(n) for n in (2, 3, 2)], [ir.IndexExpr(n) for n in (6, 2, 1)])
    builder.output(x, [])
    made = Recipe(Recipe.Kind.PLAN)
    made.graph = builder.finish()
    made.sources, made.results = [Source.tensor(0, Recipe.Form(*form))], [Result.input(0)]
    made = pickle.loads(pickle.dumps(made)) if stored else made
    for given in (z, z.conj(), torch._neg_view(z), torch._neg_view(z.conj())):
        plan = Plan()
        made.call(plan, [given])
        stands_for = torch.view_as_complex(plan.given[-1])
        stands_for = stands_for.conj() if form[1] else stands_for
        stands_for = -stands_for if form[2] else stands_for
        assert torch.equal(stands_for.resolve_conj(), given.resolve_conj().resolve_neg())


def test_too_few_arguments() -> None:
    with pytest.raises(IndexError):
        recipe().call(Plan(), [X, 0.1])


def test_damaged_entries() -> None:
    entry = recipe().__getstate__()
    for harmed in (entry[: len(entry) // 2], entry[:-1], b"", entry + b"x", entry.replace(b"recipe", b"eciper")):
        with pytest.raises(InternalError, match="an entry of the cache cannot be read"):
            Recipe.__new__(Recipe).__setstate__(harmed)

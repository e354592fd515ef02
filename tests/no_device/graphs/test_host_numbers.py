# tests/no_device/graphs/test_host_numbers.py: lists of 0-dimensional CPU tensors become vectors; other lists do not change.
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from torch_ocl_compile.fx.host_numbers import stack_numbers


def adam(*steps):
    counts = torch._foreach_add(steps, 1)
    first, second = torch._foreach_pow(0.9, counts), torch._foreach_pow(0.999, counts)
    bias = torch._foreach_sqrt(torch._foreach_neg(torch._foreach_sub(second, 1)))
    size = torch._foreach_reciprocal(torch._foreach_div(torch._foreach_sub(first, 1), 1e-3))
    both = torch._foreach_mul(size, bias)
    torch._foreach_copy_(steps, counts)
    return *bias, *both


def after_a_write(*numbers):
    before = torch._foreach_mul(numbers, 2)
    numbers[0].fill_(7)
    return *before, *torch._foreach_mul(numbers, 3)


def numbers(count, dtype=torch.float32):
    return [torch.tensor(1.5 + i, dtype=dtype) for i in range(count)]


def stacked(function, inputs):
    """Returns the results of the rewritten graph, its inputs afterwards, and the targets of its nodes."""
    module = make_fx(function)(*[x.clone() for x in inputs])
    stack_numbers(module)
    left = [x.clone() for x in inputs]
    return module(*left), left, [str(n.target) for n in module.graph.nodes if n.op == "call_function"]


@pytest.mark.parametrize("function", [adam, after_a_write])
def test_the_same_numbers(function):
    inputs = numbers(9)
    got, left, targets = stacked(function, inputs)
    kept = [x.clone() for x in inputs]
    expected = function(*kept)
    torch.testing.assert_close([*got], [*expected], rtol=3e-7, atol=0)
    torch.testing.assert_close(left, kept, rtol=0, atol=0)
    assert not any("_foreach" in t and "copy" not in t for t in targets)
    assert targets.count("aten.stack.default") == (1 if function is adam else 2), "of what was written, anew"


@pytest.mark.parametrize(
    "inputs",
    [numbers(2), numbers(9, torch.int64), [torch.ones(3)] * 9, [*numbers(5), *numbers(5, torch.float64)]],
    ids=["few", "integers", "vectors", "two types"],
)
def test_other_lists_are_not_stacked(inputs):
    def scaled(*numbers):
        return torch._foreach_mul(numbers, 2)

    got, _, targets = stacked(scaled, inputs)
    assert "aten.stack.default" not in targets
    torch.testing.assert_close([*got], [*torch._foreach_mul(inputs, 2)])

# tests/no_device/tree/test_exact.py: tests/device/exact.py accepts a sum in another order, and rejects wrong sums.
import pytest
import torch

from tests.device.exact import assert_as_exact


def product(a, b):
    return a @ b


def in_blocks(a, b):
    """Sums 16 terms at a time, as another CPU would."""
    return sum(x @ y for x, y in zip(a.split(16, 1), b.split(16, 0), strict=True))


def test_another_order_of_a_sum_passes_and_a_mistake_does_not():
    torch.manual_seed(0)
    a, b = torch.randn(64, 4096), torch.randn(4096, 64)
    other = in_blocks(a, b)
    # A fixed tolerance would reject correct sums near 0.
    with pytest.raises(AssertionError):
        torch.testing.assert_close(other, product(a, b), rtol=1e-4, atol=1e-5)
    assert_as_exact(other, product, a, b)
    other[3, 2] += 0.05
    with pytest.raises(AssertionError, match="rmse against fp64"):
        assert_as_exact(other, product, a, b)


def test_the_inputs_stay():
    x = torch.ones(3)
    assert_as_exact(torch.full((3,), 2.0), lambda x: x.add_(1), x)
    assert x.tolist() == [1, 1, 1]

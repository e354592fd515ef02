# tests/no_device/graphs/test_error_bounds.py: error bounds have the dtype of the results in the check: fp64.
import math

import pytest
import torch

from torch_ocl_compile.reference.error_bounds import normalized_bound, unknown_where


@pytest.mark.parametrize("otherwise", [None, torch.tensor([0.5, 0.5], dtype=torch.float64)])
def test_unknown_elements(otherwise):
    bound = unknown_where(torch.tensor([True, False]), otherwise)
    assert bound.dtype is torch.float64
    assert bound.tolist() == [math.inf, 0.0 if otherwise is None else 0.5]


def test_no_bound_where_nothing_is_unknown():
    assert normalized_bound(unknown_where(torch.tensor([False, False]))) is None

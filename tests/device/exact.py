# tests/device/exact.py: a device's results against fp64, allowed the error that PyTorch's own fp32 has.
"""For tests whose reference is fp32 on the CPU: another CPU rounds sums and products otherwise, so that no fixed tolerance
holds on all. The rule is that of the conformance tests (tests/conformance/judge.py)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from tests.conformance.cases import nudged, widened
from tests.conformance.judge import difference


def assert_as_exact(got: Any, function: Callable[..., Any], *inputs: Any) -> None:
    """`got` is as near to `function(*inputs)` in fp64 as what PyTorch computes on the CPU. `inputs`: tensors on the CPU, in
    any nesting; `function` computes in their dtype, on copies of them."""

    def reference(move: Callable[[Any], Any]) -> Any:
        return function(*tree_map_only(torch.Tensor, move, inputs))

    wrong = difference(got, reference(torch.clone), lambda: [reference(m) for m in (widened, *map(nudged, range(3)))])
    assert not wrong, wrong

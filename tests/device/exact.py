# tests/device/exact.py: compares results with fp64, and allows the error that PyTorch's own fp32 has.
"""For tests whose reference is fp32 on the CPU.

Different CPUs add terms in different orders, so no fixed tolerance works on all of them. The rule for the allowed error
is that of the conformance tests (tests/conformance/judge.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from tests.conformance.cases import nudged, widened
from tests.conformance.judge import difference


def assert_as_exact(got: Any, function: Callable[..., Any], *inputs: Any) -> None:
    """Asserts that `got` is about as close to `function(*inputs)` in fp64 as PyTorch's result on the CPU.

    `inputs` are tensors on the CPU, in any nesting; `function` computes in their dtype, on copies of them.
    """

    def reference(move: Callable[[Any], Any]) -> Any:
        return function(*tree_map_only(torch.Tensor, move, inputs))

    wrong = difference(got, reference(torch.clone), lambda: [reference(m) for m in (widened, *map(nudged, range(3)))])
    assert not wrong, wrong

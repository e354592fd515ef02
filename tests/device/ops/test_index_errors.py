# tests/device/ops/test_index_errors.py: when an index out of range raises, and when not.
"""tests/device/ops/test_bad_input.py tests each op that takes indices."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torch_ocl_compile import _C, config

FAR = r"index 7 is out of bounds for dimension 0 with size 4"


def compiled(function, **settings):
    torch._dynamo.reset()
    return torch.compile(function, backend="ocl", **settings)


def indices(device, *values):
    return torch.tensor(values, device=device)


@pytest.mark.parametrize("wait", ["item", "cpu", "synchronize", "stream"])
def test_next_wait_raises_once(ocl_device, wait):
    waits = {
        "item": lambda y: y.sum().item(),
        "cpu": lambda y: y.cpu(),
        "synchronize": lambda y: torch.ocl.synchronize(ocl_device),
        "stream": lambda y: torch.ocl.current_stream(ocl_device).synchronize(),
    }
    x, at = torch.ones(4, device=ocl_device), compiled(lambda x, i: x[i])
    y = at(x, indices(ocl_device, 1, 7, 0))
    with pytest.raises(IndexError, match=FAR):
        waits[wait](y)
    assert torch.equal(y.cpu(), torch.ones(3))
    assert torch.equal(at(x, indices(ocl_device, -4, 3, 0)).cpu(), torch.ones(3))
    at(x, indices(ocl_device, 7, 0, 0))
    with pytest.raises(IndexError, match=FAR):
        waits[wait](y)


def test_other_stream(ocl_device):
    """What a wait of one stream does not see yet, a later wait of the other stream raises."""
    x, at = torch.ones(4, device=ocl_device), compiled(lambda x, i: x[i])
    far = indices(ocl_device, 7)
    torch.ocl.synchronize(ocl_device)
    side = torch.Stream(ocl_device)
    with torch.ocl.stream(side):
        y = at(x, far)
    with pytest.raises(IndexError, match=FAR):
        assert x.sum().item() == 4
        side.synchronize()
    with torch.ocl.stream(side):
        assert y.sum().item() == 1


def test_where(ocl_device):
    """The message names the line or the module; for a single op, what to do to find the line."""
    x, far = torch.ones(4, 2, device=ocl_device), indices(ocl_device, 7)
    model = nn.Sequential(nn.Embedding(4, 2), nn.Linear(2, 2)).to(ocl_device)
    for function, args, place in (
        (compiled(lambda x, i: x[i]), (x, far), r"test_index_errors\.py"),
        (compiled(model), (far,), r"module 0 \(Embedding\)"),
        (lambda x, i: x[i], (x, far), r"aten\.index\.Tensor, outside of compiled functions\n.*TORCH_OCL_DEBUG=1"),
    ):
        function(*args)
        with pytest.raises(IndexError, match=rf"(?s){FAR}.*{place}"):
            torch.ocl.synchronize(ocl_device)


def test_debug_raises_at_once(ocl_device):
    """Single ops, too."""
    x, far = torch.ones(4, 2, device=ocl_device), indices(ocl_device, 7)
    _C.forget_eager_plans()
    with config.override(debug=True):
        for function in (
            lambda: x[far],
            lambda: F.embedding(far, x),
            lambda: x.index_add(0, far, x[:1]),
            lambda: F.one_hot(far, 5),
            lambda: F.cross_entropy(x[:1], far),
        ):
            with pytest.raises(IndexError, match=r"index 7 is out of bounds for dimension . with size [245]"):
                function()
    _C.forget_eager_plans()


def test_no_error(ocl_device):
    """Ignored labels, indices that a condition replaces, padding, and the check turned off."""
    x = torch.arange(4.0, device=ocl_device)
    i = indices(ocl_device, 0, 9, -9, 3)
    masked = compiled(lambda x, i: x[torch.where((i >= 0) & (i < 4), i, 0)])
    assert masked(x, i).tolist() == [0, 0, 0, 3]
    padded = compiled(lambda x, i: F.pad(x[i + 1], (3, 2)) + F.pad(x[i], (3, 2)))
    assert padded(x, indices(ocl_device, 0, 2)).tolist() == [0, 0, 0, 1, 5, 0, 0]
    loss = compiled(F.cross_entropy)(x.expand(2, 4), indices(ocl_device, -100, 1))
    torch.testing.assert_close(loss.cpu(), F.cross_entropy(x.cpu()[None], torch.tensor([1])))
    F.nll_loss(x.expand(2, 4), indices(ocl_device, 7, 1), ignore_index=7).item()
    unchecked = compiled(lambda x, i: x[i], options={"index_errors": False})
    assert unchecked(x, i).tolist() == [0, 3, 0, 3]


@pytest.mark.parametrize(
    "op",
    [
        lambda x, i: x[i],
        lambda x, i: x[:, i[:0], i],
        lambda x, i: x.index_put((i,), x[0, None]),
        lambda x, i: x.index_add(0, i, x[:1]),
        lambda x, i: x.index_copy(0, i, x[:1]),
        lambda x, i: x.index_fill(0, i, 2),
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.index_reduce(0, i, x[:1], "amax"),
    ],
)
def test_no_elements(ocl_device, op):
    """Indices out of range at which there is no element: index_select and index_reduce raise as on the CPU, others do not."""

    def raises(function, device):
        try:
            function(torch.zeros(3, 0, 4, device=device), indices(device, 7))
            torch.ocl.synchronize(ocl_device)
        except (IndexError, RuntimeError):
            return True
        return False

    assert raises(compiled(op), ocl_device) == raises(op, ocl_device) == raises(op, "cpu")


def test_far_indices(ocl_device):
    """Indices beyond 2^30 are noted as this."""
    x, at = torch.ones(4, device=ocl_device), compiled(lambda x, i: x[i])
    for far, text in ((2**63 - 1, "of 1073741823 or beyond"), (-(2**63), "of -1073741823 or beyond"), (-5, "-5")):
        at(x, indices(ocl_device, far))
        with pytest.raises(IndexError, match=f"index {text} is out of bounds"):
            torch.ocl.synchronize(ocl_device)


@pytest.mark.parametrize("compiles", [False, True])
def test_inputs_of_binary_cross_entropy(ocl_device, compiles):
    run = compiled(F.binary_cross_entropy) if compiles else F.binary_cross_entropy
    target = torch.ones(2, device=ocl_device)
    assert run(torch.tensor([1.0, 0.5], device=ocl_device), target).item() == pytest.approx(0.34657, rel=1e-4)
    for wrong in (2.0, -0.5, float("nan")):
        with pytest.raises(IndexError, match=r"binary_cross_entropy expects inputs in \[0, 1\]"):
            run(torch.tensor([wrong, 0.5], device=ocl_device), target).item()

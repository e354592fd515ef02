# tests/device/distributed/test_cuda_exchange.py: memory that ocl shares with CUDA, and NCCL, on NVIDIA GPUs with a torch that has CUDA.
from __future__ import annotations

import gc

import pytest
import torch

from tests.device.distributed.distributed_world import run_world
from torch_ocl_compile import _C
from torch_ocl_compile.errors import ConfigError

pytestmark = pytest.mark.needs("cuda")

TYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16)
TYPES += (torch.float32, torch.float64, torch.complex64)


def shared(values, device):
    with torch.ocl.shared_with_cuda():
        return values.to(device)


def reserved(device):
    gc.collect()
    torch.ocl.empty_cache()
    return torch.ocl.memory_reserved(device)


def test_to_cuda_has_the_memory_of_a_shared_tensor(ocl_device):
    x = shared(torch.arange(12.0).reshape(3, 4), ocl_device)
    view = torch.ocl.to_cuda(x)
    assert view.is_cuda and torch.equal(view.cpu(), torch.arange(12.0).reshape(3, 4))
    view *= 2
    torch.cuda.synchronize()
    assert torch.equal(x.cpu(), 2 * torch.arange(12.0).reshape(3, 4))
    x += 1
    torch.ocl.synchronize(ocl_device)
    assert torch.equal(view.cpu(), 2 * torch.arange(12.0).reshape(3, 4) + 1)


def test_to_cuda_copies_an_ordinary_tensor(ocl_device):
    x = torch.arange(5.0, device=ocl_device)
    copy = torch.ocl.to_cuda(x)
    assert copy.tolist() == [0, 1, 2, 3, 4]
    copy.zero_()
    torch.cuda.synchronize()
    assert x.tolist() == [0, 1, 2, 3, 4]


def test_the_device_is_the_same_gpu(ocl_device):
    view = torch.ocl.to_cuda(torch.ones(1, device=ocl_device))
    assert _C.ocl_device_of_cuda(view.device.index) == torch.device(ocl_device).index
    assert torch.cuda.get_device_name(view.device) in torch.ocl.get_device_name(ocl_device)


def test_from_cuda_has_the_memory_of_a_tensor_of_to_cuda(ocl_device):
    x = shared(torch.arange(6.0), ocl_device)
    view = torch.ocl.to_cuda(x)
    view += 1
    back = torch.ocl.from_cuda(view[2:])
    assert back.device == torch.device(ocl_device) and back.tolist() == [3, 4, 5, 6]
    back.zero_()
    assert x.tolist() == [1, 2, 0, 0, 0, 0]


def test_from_cuda_copies_a_tensor_of_cuda(ocl_device):
    cuda = torch.ocl.to_cuda(torch.ones(1, device=ocl_device)).device
    foreign = torch.arange(6.0, device=cuda).reshape(2, 3).t()
    copy = torch.ocl.from_cuda(foreign)
    assert copy.stride() == foreign.stride() and torch.equal(copy.cpu(), foreign.cpu())
    torch.ocl.to_cuda(copy).zero_()
    torch.cuda.synchronize()
    assert not copy.any() and foreign[1, 1] == 4
    strided = torch.arange(10, device=cuda)[::3]
    assert torch.ocl.from_cuda(strided).tolist() == [0, 3, 6, 9]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_type(ocl_device, dtype):
    values = torch.tensor([0, 1, 1, 0, 1]).to(dtype)
    view = torch.ocl.to_cuda(shared(values, ocl_device))
    assert view.dtype == dtype and torch.equal(view.cpu(), values)
    assert torch.equal(torch.ocl.from_cuda(view.clone()).cpu(), values)


def test_views_scalars_and_empty_tensors(ocl_device):
    x = shared(torch.arange(24.0).reshape(2, 3, 4), ocl_device)
    for view in (x[1], x.permute(2, 0, 1), x[:, 1:, ::2], x[0, 0].expand(5, 4), x[1, 2, 3]):
        seen = torch.ocl.to_cuda(view)
        assert seen.stride() == view.stride() and torch.equal(seen.cpu(), view.cpu())
    assert torch.ocl.to_cuda(torch.empty(0, 3, device=ocl_device)).shape == (0, 3)
    assert torch.ocl.from_cuda(torch.ocl.to_cuda(torch.empty(0, 3, device=ocl_device))).shape == (0, 3)


def test_memory_lives_as_long_as_a_tensor_of_either_side(ocl_device):
    before = reserved(ocl_device)
    x = shared(torch.arange(4.0), ocl_device)
    view = torch.ocl.to_cuda(x)
    del x
    assert reserved(ocl_device) > before and view.tolist() == [0, 1, 2, 3]
    back = torch.ocl.from_cuda(view)
    del view
    assert back.tolist() == [0, 1, 2, 3]
    del back
    assert reserved(ocl_device) <= before


def test_memory_is_not_reused_while_cuda_works_on_it(ocl_device):
    """CUDA's kernels are still queued when the last tensor of their memory is deleted."""
    for _ in range(20):
        view = torch.ocl.to_cuda(shared(torch.zeros(1 << 20), ocl_device))
        with torch.cuda.stream(torch.cuda.Stream(view.device)):
            for _ in range(50):
                view += 1
            del view
        fresh = shared(torch.zeros(1 << 20), ocl_device)
        torch.cuda.synchronize()
        assert not fresh.any()


def test_large_tensors(ocl_device):
    count = (196 << 20) // 4  # more than half of the largest piece, 198 MiB
    with torch.ocl.shared_with_cuda():
        x = torch.ones(count, device=ocl_device)
    view = torch.ocl.to_cuda(x)
    view[-1] = 7
    view[0] = 5
    torch.cuda.synchronize()
    assert x[-1].item() == 7 and x[0].item() == 5 and view.sum(dtype=torch.float64).item() == count + 10


def test_streams_of_both_sides(ocl_device):
    stream, cuda_stream = torch.Stream(torch.device(ocl_device)), torch.cuda.Stream()
    x = shared(torch.zeros(1 << 20), ocl_device)
    torch.ocl.synchronize(ocl_device)
    for step in range(10):
        with torch.ocl.stream(stream):
            for _ in range(20):
                x += 1
            view = torch.ocl.to_cuda(x)
        with torch.cuda.stream(cuda_stream):
            for _ in range(20):
                view += 1
            back = torch.ocl.from_cuda(view)
        with torch.ocl.stream(stream):
            assert (back == 40 * (step + 1)).all()


def test_compiled_functions_and_kept_weights_see_writes_of_cuda(ocl_device):
    layer = torch.nn.Linear(512, 512, bias=False)
    with torch.ocl.shared_with_cuda():
        layer.to(ocl_device)
    compiled = torch.compile(layer, backend="ocl")
    x = torch.ones(256, 512, device=ocl_device)
    with torch.no_grad():
        first = compiled(x).cpu()
        weight = torch.ocl.to_cuda(layer.weight.detach())
        for total in (2, 4, 8):
            weight *= 2
            torch.cuda.synchronize()
            torch.testing.assert_close(compiled(x).cpu(), first * total)


def test_training_reads_inputs_of_cuda(ocl_device):
    weight = torch.randn(8, 4, device=ocl_device, requires_grad=True)
    inputs = torch.randn(16, 8, device=torch.ocl.to_cuda(weight.detach()).device)
    x = torch.ocl.from_cuda(inputs)
    (x @ weight).square().sum().backward()
    assert weight.grad is not None
    expected = 2 * inputs.cpu().t() @ (inputs.cpu() @ weight.detach().cpu())
    torch.testing.assert_close(torch.ocl.to_cuda(weight.grad).cpu(), expected, rtol=1e-4, atol=1e-4)


def test_wrong_tensors(ocl_device):
    x = torch.ones(3, device=ocl_device)
    for function, tensor, text in (
        (torch.ocl.to_cuda, torch.ones(3), "expected a tensor on ocl"),
        (torch.ocl.from_cuda, x, "expected a tensor on cuda"),
        (torch.ocl.to_cuda, x.clone().requires_grad_(), "detach"),
        (torch.ocl.to_cuda, torch.ones(3, dtype=torch.complex64).to(ocl_device).conj(), "resolve_conj"),
    ):
        with pytest.raises(ConfigError, match=text):
            function(tensor)


# NCCL with one rank, because a machine may have one GPU only. The checks compare with gloo on CPU tensors.
ONE_RANK = [
    "check_all_reduce",
    "check_reductions_that_gloo_lacks",
    "check_moves",
    "check_reduce_scatter",
]
ONE_RANK += ["check_gather_and_scatter", "check_uneven_all_to_all", "check_views_and_empty", "check_coalesced"]
ONE_RANK += ["check_objects_and_barrier", "check_futures", "check_results_follow_the_stream"]
ONE_RANK_NCCL = [
    "check_group_uses_nccl",
    "check_premultiplied_sums",
    "check_shared_tensors_are_used_in_place",
    "check_streams",
]


@pytest.fixture(scope="module")
def nccl(ocl_device, tmp_path_factory):
    def start(module, checks):
        folder = tmp_path_factory.mktemp(module)
        outcome = run_world(module, [ocl_device], folder, checks, of_rank=lambda rank: {"TORCH_OCL_NCCL": "1"})
        return {name: text and text + (folder / "log0").read_text()[-2000:] for name, text in outcome.items()}

    return start("distributed_collectives", ONE_RANK) | start("distributed_nccl", ONE_RANK_NCCL)


@pytest.mark.parametrize("check", [*ONE_RANK_NCCL, *ONE_RANK])
def test_nccl_with_one_rank(nccl, check):
    assert nccl[check] == "", nccl[check]

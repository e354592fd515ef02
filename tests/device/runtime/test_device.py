# tests/device/runtime/test_device.py: ocl as an eager PyTorch device: events, generators, fallbacks, recurrent layers, attention.
import copy
import warnings

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensor, FakeTensorMode

import torch_ocl_compile
from tests.device.exact import assert_as_exact
from tests.device.own_process import run_python
from torch_ocl_compile.dtypes import IR_DTYPES

OLD_TORCH = torch.__version__ < (2, 12)

pytestmark = pytest.mark.sampled(every=3)  # Runtimes differ here.


def index_of(device):
    return torch.device(device).index


# Devices, events


def test_current_device(two_ocl_devices):
    b = two_ocl_devices[1]
    before = torch.ocl.current_device()
    with torch.ocl.device(b):
        assert torch.ocl.current_device() == index_of(b)
        assert torch.empty(1, device="ocl").device == torch.device(b)
        with torch.ocl.device(None):
            assert torch.ocl.current_device() == index_of(b)
    assert torch.ocl.current_device() == before
    with torch.ocl.device_of(torch.empty(1, device=b)):
        assert torch.ocl.current_device() == index_of(b)
    torch.ocl.set_device(b)
    assert torch.ones(1, device="ocl").device == torch.device(b)
    torch.ocl.set_device(before)


def test_properties(ocl_device):
    p = torch.ocl.get_device_properties(ocl_device)
    assert p.name == torch.ocl.get_device_name(ocl_device) and p.total_memory > 0 and p.index == index_of(ocl_device)
    assert torch.accelerator.current_accelerator().type == "ocl"
    assert torch.accelerator.device_count() == torch.ocl.device_count()
    assert torch.ones(1, device=ocl_device).is_ocl and torch.ones(1).ocl().is_ocl
    assert nn.Linear(1, 1).ocl().weight.is_ocl


def test_events(ocl_device):
    with torch.ocl.device(ocl_device):
        default, side = torch.ocl.current_stream(), torch.Stream("ocl")
        assert default == torch.ocl.default_stream() != side
        with torch.ocl.stream(side):
            assert torch.ocl.current_stream() == side
        assert torch.ocl.current_stream() == default
        start, end = (torch.Event("ocl", enable_timing=True) for _ in range(2))
        start.record()
        x = torch.zeros(1 << 20, device="ocl").half()
        end.record()
        end.synchronize()
        assert end.query() and start.elapsed_time(end) >= 0
        with pytest.raises((RuntimeError, ValueError), match="enable_timing"):
            plain = torch.Event("ocl")
            plain.record()
            plain.elapsed_time(end)
        assert float(x[0]) == 0


def test_default_device(ocl_device):
    with torch.device(ocl_device):
        assert torch.ones(2).device == torch.device(ocl_device)
        assert nn.Linear(2, 2).weight.device == torch.device(ocl_device)


# Random numbers


def test_seed_reproduces(ocl_device):
    def draw():
        ones, floats = torch.ones(50, device=ocl_device), torch.empty(9, device=ocl_device)
        return [
            torch.randn(50, device=ocl_device),
            torch.rand(7, 3, device=ocl_device),
            torch.randint(100, (9,), device=ocl_device),
            torch.randperm(20, device=ocl_device),
            torch.multinomial(ones, 13),
            floats.clone().exponential_(),
            ones.clone().bernoulli_(0.3),
            torch.bernoulli(ones / 2),
            torch.normal(ones, 1.0),
            torch.nn.functional.dropout(ones),
            torch.native_dropout(ones, 0.5, True)[0],
        ]

    torch.manual_seed(5)
    cpu_before = torch.get_rng_state()
    first = draw()
    assert torch.equal(cpu_before, torch.get_rng_state())  # The CPU's own generator is not touched.
    second = draw()
    torch.manual_seed(5)
    for a, b, c in zip(first, second, draw(), strict=True):
        assert torch.equal(a.cpu(), c.cpu())
        assert not torch.equal(a.cpu(), b.cpu())


def test_generators(ocl_device):
    generator = torch.Generator(ocl_device)
    generator.manual_seed(3)
    state = generator.get_state()
    assert state.dtype == torch.uint8 and state.numel() == 16 and state.device.type == "cpu"
    default = torch.ocl.get_rng_state(ocl_device)
    a = torch.randn(5, device=ocl_device, generator=generator)
    assert torch.equal(default, torch.ocl.get_rng_state(ocl_device)) and not torch.equal(state, generator.get_state())
    generator.set_state(state)
    assert torch.equal(torch.randn(5, device=ocl_device, generator=generator).cpu(), a.cpu())
    assert generator.initial_seed() == 3 and generator.device == torch.device(ocl_device)
    twin = torch.Generator(ocl_device)
    twin.set_state(generator.get_state())
    assert torch.equal(
        torch.rand(4, device=ocl_device, generator=twin).cpu(),
        torch.rand(4, device=ocl_device, generator=generator).cpu(),
    )
    with pytest.raises(TypeError, match="16 elements"):
        generator.set_state(torch.zeros(3, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(5, device=ocl_device, generator=torch.Generator("cpu"))


def test_rng_state_functions(ocl_device):
    with torch.ocl.device(ocl_device):
        torch.ocl.manual_seed(11)
        assert torch.ocl.initial_seed() == 11
        state = torch.ocl.get_rng_state()
        a = torch.randn(4, device="ocl")
        torch.ocl.set_rng_state(state)
        assert torch.equal(torch.randn(4, device="ocl").cpu(), a.cpu())
        with torch.random.fork_rng(device_type="ocl", devices=[index_of(ocl_device)]):
            torch.randn(4, device="ocl")
        after = torch.ocl.get_rng_state()
        with torch.random.fork_rng(device_type="ocl", devices=[index_of(ocl_device)]):
            torch.manual_seed(99)
        assert torch.equal(after, torch.ocl.get_rng_state())


def test_states_are_real_under_fake_tensors(ocl_device):
    with FakeTensorMode():
        state = torch.ocl.get_rng_state(ocl_device)
        torch.ocl.set_rng_state(state, ocl_device)
    assert not isinstance(state, FakeTensor) and torch.equal(state, torch.ocl.get_rng_state(ocl_device))


def test_seed_before_first_use():
    program = """
        import torch
        torch.manual_seed(42)
        assert not torch.ocl.is_initialized()
        a = torch.randn(3, device='ocl').tolist()
        torch.manual_seed(42)
        assert a == torch.randn(3, device='ocl').tolist()
    """
    status, _, err = run_python(program, fresh=True)
    assert status == 0, err


@pytest.mark.skipif(OLD_TORCH, reason="torch 2.11 cannot ask a device for its capabilities")
def test_capability_lists_the_types_that_have_kernels(ocl_device):
    types = torch.ocl.get_device_capability(ocl_device)["supported_dtypes"]
    # 8-bit floats are stored and converted, but PyTorch computes nothing in them.
    held = {dtype for dtype in IR_DTYPES if dtype != torch.float64 and not str(dtype).startswith("torch.float8")}
    assert types - {torch.float64} == held
    assert (torch.float64 in types) == torch.ocl.get_device_properties(ocl_device).has_fp64
    torch.ocl.reset_fallback_counts()
    for dtype in types - {torch.bool}:
        x = torch.ones(3, device=ocl_device).to(dtype)
        assert (x + x).float().tolist() == [2.0] * 3
    assert torch.ocl.fallback_counts() == {}


# Fallback


def test_fallback_is_counted_and_warned_of_once(ocl_device):
    torch.ocl.reset_fallback_counts()
    x = torch.eye(40, device=ocl_device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert torch.equal(torch.linalg.eigvals(x).cpu(), torch.ones(40, dtype=torch.complex64))
    messages = [str(w.message) for w in caught if "aten::_linalg_eigvals" in str(w.message)]
    assert len(messages) == 1 and "CPU" in messages[0]
    assert sum(n for op, n in torch.ocl.fallback_counts().items() if op.startswith("aten::_linalg_eigvals")) == 3


def test_native_ops_do_not_fall_back(ocl_device):
    torch.ocl.reset_fallback_counts()
    x = torch.zeros(4, 6, device=ocl_device)
    x.t().contiguous().view(-1).half().clone().fill_(2)[3].item()
    torch.ones(3, device=ocl_device).expand(2, 3).contiguous().cpu()
    assert torch.ocl.fallback_counts() == {}


# Eager networks


@pytest.mark.sampled()
@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU], ids=["lstm", "gru"])
def test_recurrent_layers(ocl_device, cell):
    torch.manual_seed(0)
    net = cell(3, 5)
    x = torch.randn(4, 2, 3)

    def gradients(x, *weights):
        twin = copy.deepcopy(net).to(x)
        with torch.no_grad():
            for mine, given in zip(twin.parameters(), weights, strict=True):
                mine.copy_(given)
        return torch.autograd.grad(twin(x)[0].square().sum(), list(twin.parameters()))

    weights = [w.detach() for w in net.parameters()]
    got = gradients(*(t.to(ocl_device) for t in (x, *weights)))
    assert_as_exact(got, gradients, x, *weights)


@pytest.mark.sampled(first=2)
@pytest.mark.parametrize("choice", [0, 4], ids=["math", "overrideable"])
@pytest.mark.parametrize(("causal", "mask"), [(False, None), (True, None), (False, "float"), (False, "bool")])
def test_attention(ocl_device, choice, causal, mask):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
    bias = {None: None, "float": torch.randn(2, 1, 5, 5), "bool": torch.rand(2, 1, 5, 5) > 0.2}[mask]

    def attend(bias, *inputs):
        leaves = [t.detach().requires_grad_() for t in inputs]
        out = nn.functional.scaled_dot_product_attention(*leaves, attn_mask=bias, is_causal=causal)
        return [out, *torch.autograd.grad(out.square().sum(), leaves)]

    torch_ocl_compile._C.set_sdp_choice(choice)
    try:
        got = attend(None if bias is None else bias.to(ocl_device), *(t.to(ocl_device) for t in (q, k, v)))
    finally:
        torch_ocl_compile._C.set_sdp_choice(-1)
    assert_as_exact(got, attend, bias, q, k, v)

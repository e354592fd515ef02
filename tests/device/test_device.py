# tests/device/test_device.py: ocl as a PyTorch device, eagerly: storage, copies, streams, generators, errors.
import copy
import io
import itertools
import os
import pickle
import subprocess
import sys
import textwrap
import time
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import torch_ocl_compile
from torch_ocl_compile import errors

pytestmark = pytest.mark.filterwarnings("ignore:.*has no eager ocl kernel")

ROOT = Path(__file__).resolve().parents[2]
DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128,
]  # fmt: skip
CASTS = [(a, b) for a, b in itertools.product(DTYPES, DTYPES) if b.is_complex or not a.is_complex]


def index_of(device):
    return torch.device(device).index


def values(shape, dtype):
    """Numbers that every dtype can hold when cast from this one: no negative where a cast would be undefined."""
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(1)) * 50).abs()
    return x.to(dtype)


def run_python(program, **env):
    """A program in a process of its own: (exit status, stdout, stderr)."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", "import torch_ocl_compile\n" + textwrap.dedent(program)],
        capture_output=True, text=True, timeout=300, env={**os.environ, "PYTHONPATH": path, **env},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


# Copies


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_round_trip(ocl_device, dtype):
    x = values((3, 5, 7), dtype)
    y = x.to(ocl_device)
    assert y.device == torch.device(ocl_device) and y.dtype == dtype
    assert torch.equal(y.cpu(), x)
    assert torch.equal(y.clone().cpu(), x)


@pytest.mark.parametrize(("src", "dst"), CASTS, ids=str)
def test_strided_converting_copies(ocl_device, src, dst):
    x = values((5, 7, 3), src)
    on_device = x.to(ocl_device)
    expected = x.permute(2, 0, 1)[:, 1:, ::2].to(dst)
    assert torch.equal(on_device.permute(2, 0, 1)[:, 1:, ::2].to(dst).cpu(), expected)  # within the device
    down = torch.zeros(3, 4, 4, dtype=dst)
    down.copy_(on_device.permute(2, 0, 1)[:, 1:, ::2])
    assert torch.equal(down, expected)
    up, up_expected = torch.zeros(7, 5, 3, dtype=dst, device=ocl_device), torch.zeros(7, 5, 3, dtype=dst)
    for target, source in ((up, x), (up_expected, x)):
        target.transpose(0, 1)[..., ::2].copy_(source[..., ::2])
    assert torch.equal(up.cpu(), up_expected)


def test_special_values_survive_conversion(ocl_device):
    x = torch.tensor(
        [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 65504.0, 65520.0, 1e-8, 3.4e38, 1.00390625, 1.01171875]
    )
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.bool):
        if dtype == torch.float64 and not torch.ocl.get_device_properties(ocl_device).has_fp64:
            continue
        got = x.to(ocl_device).to(dtype).cpu()
        torch.testing.assert_close(got, x.to(dtype), rtol=0, atol=0, equal_nan=True)
        if dtype != torch.bool:
            numbers = ~x.isnan()
            assert torch.equal(got.signbit()[numbers], x.to(dtype).signbit()[numbers])


def test_many_dimensions(ocl_device):
    x = torch.arange(3 * 2**9, dtype=torch.float32).reshape(3, *([2] * 9))
    order = list(range(9, -1, -1))
    assert torch.equal(x.to(ocl_device).permute(order).contiguous().cpu(), x.permute(order).contiguous())


def test_conjugate_and_negative_views(ocl_device):
    x = values((3, 4), torch.complex64) + 1j
    y = x.to(ocl_device)
    assert torch.equal(y.conj().cpu(), x.conj())
    assert torch.equal(y.conj().clone().cpu(), x.conj())
    assert torch.equal(y.conj().imag.cpu(), x.conj().imag)
    z = torch.zeros_like(y)
    z.conj().copy_(y)
    assert torch.equal(z.cpu(), x.conj())
    assert torch.equal(torch.view_as_real(y).cpu(), torch.view_as_real(x))
    assert torch.view_as_real(y).data_ptr() == y.data_ptr()


def test_overlapping_copy(ocl_device):
    x = torch.arange(1000.0)
    y = x.to(ocl_device)
    y[1:].copy_(y[:-1])
    assert torch.equal(y.cpu(), torch.cat([x[:1], x[:-1]]))
    y.copy_(y)


def test_copies_between_devices(two_ocl_devices):
    a, b = two_ocl_devices
    x = values((6, 5), torch.float32)
    y = x.to(a)
    assert torch.equal(y.to(b).cpu(), x) and y.to(b).device == torch.device(b)
    assert torch.equal(y.t()[1:].to(b).cpu(), x.t()[1:])
    z = torch.zeros(5, 6, device=b, dtype=torch.float64)
    z.t().copy_(y)
    assert torch.equal(z.cpu(), x.t().double())


def test_broadcast_and_fill(ocl_device):
    x = torch.zeros(4, 6, device=ocl_device)
    x[:, ::2] = 3
    x[1] = torch.arange(6.0)
    expected = torch.zeros(4, 6)
    expected[:, ::2] = 3
    expected[1] = torch.arange(6.0)
    assert torch.equal(x.cpu(), expected)
    assert torch.full((3,), 7, dtype=torch.int64, device=ocl_device).tolist() == [7, 7, 7]
    assert torch.ones(3, dtype=torch.bool, device=ocl_device).tolist() == [True] * 3
    assert torch.full((2,), 1 + 2j, device=ocl_device).tolist() == [1 + 2j] * 2


def test_zero_size_tensors(ocl_device):
    for shape in ((0,), (3, 0), (0, 2, 2)):
        x = torch.empty(shape, device=ocl_device)
        assert x.data_ptr() == 0 and x.device == torch.device(ocl_device)
        assert x.cpu().shape == shape and x.clone().shape == shape and x.half().shape == shape
        x.fill_(1), x.copy_(torch.empty(shape)), torch.empty(shape).copy_(x)
    assert torch.zeros(3, device=ocl_device)[3:].to("cpu").numel() == 0


# Views and storage


def test_views_share_memory(ocl_device):
    x = torch.arange(24.0).to(ocl_device)
    expected = torch.arange(24.0)
    v = x.view(4, 6)[1:, 2:5]
    v.fill_(-1)
    expected.view(4, 6)[1:, 2:5].fill_(-1)
    assert torch.equal(x.cpu(), expected)
    assert v.storage_offset() == 8 and v.data_ptr() == x.data_ptr() + 32
    assert v[1, 1].item() == -1
    assert torch.equal(x.unfold(0, 4, 2).cpu(), expected.unfold(0, 4, 2))
    assert x.unfold(0, 4, 2).data_ptr() == x.data_ptr()
    assert torch.equal(x.view(torch.int32).cpu(), expected.view(torch.int32))


def test_resize_and_set(ocl_device):
    x = torch.arange(6.0).to(ocl_device)
    x.resize_(2, 3)
    x.resize_(10)
    assert torch.equal(x[:6].cpu(), torch.arange(6.0))
    y = torch.empty(0, device=ocl_device)
    y.set_(x.untyped_storage(), 2, (2, 2), (2, 1))
    assert torch.equal(y.cpu(), torch.tensor([[2.0, 3.0], [4.0, 5.0]]))
    y.data = torch.zeros(3, device=ocl_device)
    assert y.shape == (3,)
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0


def test_memory_formats(ocl_device):
    x = torch.randn(2, 3, 4, 5)
    y = x.to(ocl_device).to(memory_format=torch.channels_last)
    assert y.is_contiguous(memory_format=torch.channels_last) and torch.equal(y.cpu(), x)
    assert torch.empty_like(y).stride() == y.stride()
    assert y.contiguous().is_contiguous() and torch.equal(y.contiguous().cpu(), x)


def test_host_dereference_faults(ocl_device):
    status, _, err = run_python(f"""
        import ctypes, torch
        x = torch.ones(4, device={ocl_device!r})
        ctypes.string_at(x.data_ptr(), 4)
    """)
    assert status == -11, err  # SIGSEGV, at once


def test_printing(ocl_device):
    torch.ocl.reset_fallback_counts()
    text = repr(torch.tensor([1.5, 2.0], device=ocl_device))
    assert text == f"tensor([1.5000, 2.0000], device='{ocl_device}')"
    assert "grad_fn" in repr(torch.ones(2, device=ocl_device, requires_grad=True).view(2))
    assert repr(torch.zeros(0, device=ocl_device)).startswith("tensor([]")


def test_pickle_and_deepcopy(ocl_device):
    x = torch.randn(3, 4, device=ocl_device)
    for twin in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), copy.copy(x)):
        assert twin.device == x.device and torch.equal(twin.cpu(), x.cpu())
    model = nn.Linear(3, 2).to(ocl_device)
    twin = copy.deepcopy(model)
    assert twin.weight.data_ptr() != model.weight.data_ptr() and torch.equal(twin.weight.cpu(), model.weight.cpu())


def test_save_and_load(ocl_device):
    base = torch.arange(10.0).to(ocl_device)
    stream = io.BytesIO()
    torch.save({"base": base, "view": base[2:5], "cpu": torch.ones(2)}, stream)

    def load(map_location):
        stream.seek(0)
        return torch.load(stream, map_location=map_location, weights_only=True)

    for where, expected in (
        (None, ocl_device), ("cpu", "cpu"), (torch.device(ocl_device), ocl_device), ("ocl:0", "ocl:0"),
        (lambda storage, _: storage, "cpu"), ({ocl_device: "cpu"}, "cpu"),
    ):  # fmt: skip
        got = load(where)
        assert got["base"].device == torch.device(expected)
        assert torch.equal(got["base"].cpu(), base.cpu())
        got["base"].fill_(7)
        assert got["view"].tolist() == [7, 7, 7]  # still shares
    stream = io.BytesIO()
    torch.save(torch.ones(3), stream)
    assert load(ocl_device).device == torch.device(ocl_device)


# Host memory


def test_pinned_memory(ocl_device):
    x = torch.randn(1000, 100).pin_memory()
    assert x.is_pinned() and not torch.randn(3).is_pinned()
    with torch.ocl.device(ocl_device):
        y = x.to("ocl", non_blocking=True)
        back = torch.empty(1000, 100, pin_memory=True)
        back.copy_(y, non_blocking=True)
        torch.ocl.synchronize()
    assert torch.equal(back, x)
    for _ in range(20):  # a block is not reused while a copy still reads it
        y = torch.full((1 << 18,), 5.0).pin_memory().to(ocl_device, non_blocking=True)
        z = torch.full((1 << 18,), 6.0).pin_memory()
        assert z[0] == 6 and bool((y.cpu() == 5).all())


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader(ocl_device, workers):
    data = torch.utils.data.TensorDataset(torch.arange(20.0), torch.arange(20))
    seen = []
    for x, y in torch.utils.data.DataLoader(data, batch_size=6, pin_memory=True, num_workers=workers):
        assert x.is_pinned()
        seen += x.to(ocl_device, non_blocking=True).cpu().tolist()
        assert torch.equal(y.to(ocl_device).cpu(), y)
    assert seen == list(range(20))


# Devices, streams, events


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


def test_streams(ocl_device):
    with torch.ocl.device(ocl_device):
        default = torch.ocl.current_stream()
        assert default == torch.ocl.default_stream()
        side = torch.Stream("ocl")
        assert side != default
        x = torch.arange(1 << 16, dtype=torch.float32).to("ocl")
        side.wait_stream(default)
        for _ in range(20):  # blocks freed on one stream are not reused early on the other
            with torch.ocl.stream(side):
                assert torch.ocl.current_stream() == side
                y = x.half().float()
            x.record_stream(side)
            z = torch.zeros(1 << 16, device="ocl")
            default.wait_stream(side)
            assert torch.equal(y.cpu(), x.cpu().half().float()) and not z.cpu().any()
            del y, z
        side.synchronize()
        assert torch.ocl.current_stream() == default
        deadline = time.monotonic() + 10
        while not side.query():  # a marker in an idle queue takes the runtime's thread a moment
            assert time.monotonic() < deadline


def test_default_device(ocl_device):
    with torch.device(ocl_device):
        assert torch.ones(2).device == torch.device(ocl_device)
        assert nn.Linear(2, 2).weight.device == torch.device(ocl_device)


# Memory


def test_memory_statistics(ocl_device):
    torch.ocl.empty_cache()
    before = torch.ocl.memory_allocated(ocl_device)
    torch.ocl.reset_peak_memory_stats(ocl_device)
    x = torch.empty(1 << 20, device=ocl_device)
    assert torch.ocl.memory_allocated(ocl_device) >= before + (4 << 20)
    assert torch.ocl.memory_reserved(ocl_device) >= torch.ocl.memory_allocated(ocl_device)
    assert torch.accelerator.memory_allocated(ocl_device) == torch.ocl.memory_allocated(ocl_device)
    del x
    assert torch.ocl.memory_allocated(ocl_device) == before
    assert torch.ocl.max_memory_allocated(ocl_device) >= before + (4 << 20)
    torch.ocl.empty_cache()
    assert torch.ocl.memory_stats(ocl_device)["frees"] > 0
    free, total = torch.ocl.mem_get_info(ocl_device)
    assert 0 <= free <= total


def test_out_of_memory(ocl_device):
    with pytest.raises(torch.OutOfMemoryError, match=r"tried to allocate 1048576\.00 GiB(.|\n)*memory_allocated"):
        torch.empty(1 << 50, dtype=torch.uint8, device=ocl_device)
    assert torch.ones(3, device=ocl_device).tolist() == [1, 1, 1]  # usable still


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
    assert torch.equal(cpu_before, torch.get_rng_state())  # the CPU's own generator is untouched
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
    a = torch.randn(5, device=ocl_device, generator=generator)
    assert not torch.equal(state, generator.get_state())
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


def test_seed_before_first_use():
    program = """
        import torch
        torch.manual_seed(42)
        assert not torch.ocl.is_initialized()
        a = torch.randn(3, device='ocl').tolist()
        torch.manual_seed(42)
        assert a == torch.randn(3, device='ocl').tolist()
    """
    status, _, err = run_python(program)
    assert status == 0, err


# Fallback


def test_fallback_is_counted_and_warned_of_once(ocl_device):
    torch.ocl.reset_fallback_counts()
    x = torch.tensor([3.0, 1.0, 2.0], device=ocl_device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            assert torch.nonzero(x > 1).tolist() == [[0], [2]]
    messages = [str(w.message) for w in caught if "aten::nonzero" in str(w.message)]
    assert len(messages) == 1 and "CPU" in messages[0]
    assert sum(n for op, n in torch.ocl.fallback_counts().items() if op.startswith("aten::nonzero")) == 3


def test_native_ops_do_not_fall_back(ocl_device):
    torch.ocl.reset_fallback_counts()
    x = torch.zeros(4, 6, device=ocl_device)
    x.t().contiguous().view(-1).half().clone().fill_(2)[3].item()
    torch.ones(3, device=ocl_device).expand(2, 3).contiguous().cpu()
    assert torch.ocl.fallback_counts() == {}


# Eager networks


def test_eager_training_of_a_small_cnn(ocl_device):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(4 * 16, 3),
    )
    twin = copy.deepcopy(model).to(ocl_device)
    x, y = torch.randn(6, 1, 8, 8), torch.randint(3, (6,))
    losses = []
    for net, device in ((model, "cpu"), (twin, ocl_device)):
        optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
        history = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        losses.append(history)
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-5)
    assert losses[0][-1] < losses[0][0]
    for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(b.cpu(), a, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU], ids=["lstm", "gru"])
def test_recurrent_layers(ocl_device, cell):
    torch.manual_seed(0)
    net = cell(3, 5)
    twin = copy.deepcopy(net).to(ocl_device)
    x = torch.randn(4, 2, 3)
    for n, d in ((net, "cpu"), (twin, ocl_device)):
        n(x.to(d))[0].square().sum().backward()
    for a, b in zip(net.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(b.grad.cpu(), a.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("choice", [0, 4], ids=["math", "overrideable"])
@pytest.mark.parametrize(("causal", "mask"), [(False, None), (True, None), (False, "float"), (False, "bool")])
def test_attention(ocl_device, choice, causal, mask):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 5, 4) for _ in range(3))
    bias = {None: None, "float": torch.randn(2, 1, 5, 5), "bool": torch.rand(2, 1, 5, 5) > 0.2}[mask]
    results = []
    torch_ocl_compile.device._C.set_sdp_choice(choice)
    try:
        for device in ("cpu", ocl_device):
            leaves = [t.detach().to(device).requires_grad_() for t in (q, k, v)]
            out = nn.functional.scaled_dot_product_attention(
                *leaves, attn_mask=None if bias is None else bias.to(device), is_causal=causal
            )
            out.square().sum().backward()
            results.append([out.detach().cpu(), *(t.grad.cpu() for t in leaves)])
    finally:
        torch_ocl_compile.device._C.set_sdp_choice(-1)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)


def test_autocast_and_grad_scaler(ocl_device):
    model = nn.Linear(4, 2).to(ocl_device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("ocl")
    with torch.autocast("ocl", dtype=torch.bfloat16):
        out = model(torch.randn(3, 4, device=ocl_device))
        assert out.dtype == torch.bfloat16
        loss = nn.functional.mse_loss(out, torch.zeros(3, 2, device=ocl_device))
        assert loss.dtype == torch.float32
    scaler.scale(loss).backward()
    before = model.weight.detach().cpu().clone()
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before, model.weight.detach().cpu())
    with torch.autocast("ocl"), pytest.raises(RuntimeError, match="with_logits"):
        nn.functional.binary_cross_entropy(torch.rand(2, device=ocl_device), torch.rand(2, device=ocl_device))


# Bad input: the message names what is wrong and the way out, and the process stays usable


def test_unknown_device_index(ocl_device):
    count = torch.ocl.device_count()
    for attempt in (
        lambda: torch.empty(1, device=f"ocl:{count}"),
        lambda: torch.ones(1).to("ocl:77"),
        lambda: torch.ocl.set_device(count),
        lambda: torch.ocl.get_device_properties(count),
        lambda: torch.Generator(f"ocl:{count}"),
        lambda: torch.ocl.synchronize(count),
    ):
        with pytest.raises(errors.ConfigError, match=r"ocl:\d+ does not exist; there are 0:"):
            attempt()
    assert torch.ones(2, device=ocl_device).tolist() == [1, 1]


def test_wrong_device_type():
    with pytest.raises(errors.ConfigError, match="expected an ocl device, got cpu"):
        torch.ocl.get_device_name("cpu")


def test_tensors_on_different_devices(ocl_device):
    x = torch.ones(2, 2, device=ocl_device)
    for attempt in (
        lambda: torch.mm(x, torch.ones(2, 2)),
        lambda: x + torch.ones(2),
        lambda: torch.cat([x, torch.ones(1, 2)]),
    ):
        with pytest.raises(RuntimeError, match=rf"aten::\w+.*{ocl_device}.*cpu(.|\n)*\.to\(|same device|{ocl_device}"):
            attempt()
    with pytest.raises(
        errors.ConfigError, match=r"expected a tensor on an ocl device, got one on cpu.*\n.*to\('ocl'\)"
    ):
        torch_ocl_compile.device._C.tensor_location(torch.ones(1))
    # as on every device: a number may stay on the CPU, and so may indices
    assert (x + torch.tensor(2.0)).tolist() == [[3, 3], [3, 3]]
    assert x[torch.tensor([1])].tolist() == [[1, 1]]


def test_tensors_on_two_ocl_devices(two_ocl_devices):
    a, b = (torch.ones(2, device=d) for d in two_ocl_devices)
    for attempt in (lambda: a + b, lambda: torch.cat([a, b]), lambda: torch.dot(a, b)):
        with pytest.raises(RuntimeError, match=r"ocl:\d.*ocl:\d"):
            attempt()


def test_float64_where_there_is_none(ocl_device):
    core = torch_ocl_compile.device._C
    core.pretend_no_fp64(index_of(ocl_device), True)
    try:
        for attempt in (
            lambda: torch.empty(2, dtype=torch.float64, device=ocl_device),
            lambda: torch.ones(2, dtype=torch.float64).to(ocl_device),
            lambda: torch.ones(2, device=ocl_device).double(),
        ):
            with pytest.raises(errors.UnsupportedError, match=r"no float64(.|\n)*torch.float32"):
                attempt()
        assert torch.ones(2, device=ocl_device).cpu().double().tolist() == [1, 1]
        assert torch.ones(2, dtype=torch.float64).to(torch.float32).to(ocl_device).tolist() == [1, 1]
    finally:
        core.pretend_no_fp64(index_of(ocl_device), False)


def test_pinning_a_device_tensor(ocl_device):
    with pytest.raises(RuntimeError, match="pin"):
        torch.empty(2, device=ocl_device, pin_memory=True)


def test_selection_that_matches_nothing():
    status, _, err = run_python(
        """
        import torch
        assert not torch.ocl.is_available() and torch.ocl.device_count() == 0
        assert torch.ones(2).sum() == 2
        try:
            torch.ones(2, device='ocl')
        except torch_ocl_compile.errors.ConfigError as error:
            assert 'nonesuch' in str(error), error
        else:
            raise SystemExit('no error')
        """,
        TORCH_OCL_DEVICES="nonesuch",
    )
    assert status == 0, err


def test_selection_orders_devices(two_ocl_devices):
    names = [torch.ocl.get_device_properties(d).platform_name for d in two_ocl_devices]
    program = """
        import torch
        print(*(torch.ocl.get_device_properties(i).platform_name for i in range(torch.ocl.device_count())), sep='|')
    """
    _, out, err = run_python(program, TORCH_OCL_DEVICES=",".join(reversed([d.split(":")[1] for d in two_ocl_devices])))
    assert out.strip().split("|") == names[::-1], err


def test_broken_runtime(tmp_path):
    (tmp_path / "broken.so").write_text("not a library")
    status, _, err = run_python(f"""
        import torch
        torch_ocl_compile._C.set_device_sources('', ['{tmp_path}/broken.so', '{tmp_path}/missing.so'])
        problems = ' '.join(torch.ocl.device_problems())
        assert 'broken.so' in problems and 'missing.so' in problems, problems
        torch.ones(2).sum()
    """)
    assert status == 0, err


def test_autoload_through_the_entry_point(tmp_path):
    info = tmp_path / "torch_ocl_compile_test-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-ocl-compile-test\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nocl_test = torch_ocl_compile:_autoload\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    for program in (
        "import torch; torch.ocl.current_device",
        "import torch_ocl_compile, torch; torch.ocl.current_device",
    ):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "TORCH_OCL_AUTOLOAD": "always"},
        )
        assert done.returncode == 0, done.stderr


def test_dynamo_traces_the_current_device(ocl_device):
    def f(x):
        with torch.ocl.device(index_of(ocl_device)):
            return x + torch.ocl.current_device()

    fullgraph = not torch.__version__.startswith("2.11")  # whose Dynamo skips the context manager
    got = torch.compile(f, backend="aot_eager", fullgraph=fullgraph)(torch.ones(2, device=ocl_device))
    assert got.tolist() == [1 + index_of(ocl_device)] * 2


def test_import_loads_no_runtime():
    status, _, err = run_python("""
        import torch
        torch.manual_seed(0)
        torch.ones(2).sum()
        libraries = open('/proc/self/maps').read()
        assert 'libintelocl' not in libraries and 'libpocl' not in libraries
        assert not torch.ocl.is_initialized()
    """)
    assert status == 0, err


def test_forked_child_says_so(ocl_device):
    status, out, err = run_python(f"""
        import os, torch
        x = torch.ones(2, device={ocl_device!r})
        read, write = os.pipe()
        if os.fork() == 0:
            try:
                torch.ones(2, device={ocl_device!r})
                message = 'no error'
            except RuntimeError as error:
                message = str(error)
            os.write(write, message.encode())
            os._exit(0)
        print(os.read(read, 4096).decode())
        os.wait()
        assert x.tolist() == [1, 1]
    """)
    assert status == 0 and "spawn" in out, (out, err)


def test_exit_after_backward(ocl_device):
    program = f"""
        import torch
        x = torch.ones(2, device={ocl_device!r}, requires_grad=True)
        (x * 2).sum().backward()
    """
    for _ in range(3):
        status, _, err = run_python(program)
        assert status == 0, err

# tests/device/kernels/test_check.py: the option check finds planted faults and raises no false alarm.
import logging
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests import fork_server
from tests.device.faults import changed, planted
from torch_ocl_compile import config
from torch_ocl_compile.errors import KernelResultError

CHECK = {"check": True}
# A pattern and its replacement: every result of a template passes through these macros. FACTOR is the fault.
STORED = (r"(epilogue\w*)\(acc, i0", r"\1((acc) * FACTOR, i0")


@pytest.fixture(autouse=True)
def cache(tmp_path):
    with config.override(cache_dir=str(tmp_path / "cache")):
        yield tmp_path / "cache"


def attention(q):
    return F.scaled_dot_product_attention(q, q, q)


# Name -> (function, sizes of its arguments, kind of the faulty kernel, (pattern, replacement), a word of the op's
# name).
CASES = {
    "pointwise": (lambda x: torch.sin(x) * 2, [(40, 50)], "pointwise", (r" sin\((v\d+)\)", r" (sin(\1) * FACTOR)"), "sin"),
    "reduction": (lambda x: x.sum(1), [(33, 77)], "reduction", (r"( a0 \+ v\d+)", r"\1 * FACTOR"), "sum"),
    "short loop": (lambda x: x.sum(1), [(33, 77)], "reduction", (r"((?:\+ \d+|lane) <=?) 77\b", r"\1 61"), "sum"),
    "gemm": (lambda x, y: x @ y, [(33, 77), (77, 50)], "gemm", STORED, "mm"),
    "conv": (lambda x, w: F.conv2d(x, w, padding=1), [(2, 8, 12, 12), (16, 8, 3, 3)], "conv_forward", STORED, "convolution"),
    "winograd": (lambda x, w: F.conv2d(x, w, padding=1), [(2, 32, 16, 16), (64, 32, 3, 3)], "winograd", STORED, "convolution"),
    "attention": (attention, [(2, 2, 40, 16)], "attention", STORED, "attention"),
    "scatter": (
        lambda x: x.new_zeros(10).scatter_add(0, torch.arange(60, device=x.device) % 7, x),
        [(60,)],
        "reduction",
        (r"( a\d \+ v\d+)", r"\1 + 1"),
        "scatter_add",
    ),
    "scan": (lambda x: x.cumsum(1), [(5, 100)], "reduction", (r"a0 = n0;", "a0 = n0 * FACTOR;"), "cumsum"),
    "sort": (
        lambda x: x.sort(1)[0],
        [(5, 100)],
        None,
        (r"(out0(?:\[| \+ )[^;=]*[\])] = )([^;]+);", r"\1\2 + 1;"),  # Stores of one element, and of a vector on GPUs.
        "sort",
    ),
}  # fmt: skip


def arguments(shapes, device, dtype):
    torch.manual_seed(0)
    return [torch.randn(shape).to(device, dtype) for shape in shapes]


def caught(function, inputs):
    with pytest.raises(KernelResultError) as error:
        torch.compile(function, backend="ocl", options=CHECK)(*inputs)
    return str(error.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("case", CASES)
def test_a_wrong_kernel_is_found_and_named(ocl_device, case, dtype):
    function, shapes, kind, (pattern, by), op = CASES[case]
    inputs = arguments(shapes, ocl_device, dtype)
    factor = "1.001f" if dtype is torch.float32 else "1.02f"
    with planted(kind, pattern, by.replace("FACTOR", factor)) as wrong:
        torch._dynamo.reset()
        if case == "winograd" and dtype is not torch.float32:
            pytest.skip("winograd is for fp32")
        message = caught(function, inputs)
    named = re.search(r"kernel (\S+) computes something else", message)
    assert named and named[1] in wrong, message
    assert op in message and "test_check.py" in message, message


def convolved(x, w, v):
    return torch.tanh(F.conv2d(x, w).mean((2, 3))) @ v


CONVOLVED = [(2, 8, 10, 10), (16, 8, 3, 3), (16, 5)]
BACKWARD = {
    "gemm": (convolved, CONVOLVED, STORED),
    "conv_weight": (convolved, CONVOLVED, STORED),
    "reduction": (lambda x, b: torch.exp(x) * b, [(64, 40), (40,)], (r"( a\d \+ [av]\d+)", r"\1 * FACTOR")),
    "pointwise": (torch.tanh, [(64, 41)], (r"= (v\d+ \* v\d+);", r"= \1 * FACTOR;")),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
@pytest.mark.parametrize("kind", BACKWARD)
def test_a_wrong_kernel_of_a_backward_graph_is_found(ocl_device, kind, dtype):
    function, shapes, (pattern, by) = BACKWARD[kind]
    leaves = [t.requires_grad_() for t in arguments(shapes, ocl_device, dtype)]
    factor = "1.001f" if dtype is torch.float32 else "1.05f"
    with planted(kind, pattern, by.replace("FACTOR", factor), "backward") as wrong:
        result = torch.compile(lambda *t: function(*t), backend="ocl", options=CHECK)(*leaves)
        with pytest.raises(KernelResultError) as error:
            result.backward(torch.ones_like(result))
    assert any(name in str(error.value) for name in wrong), (wrong, str(error.value))
    assert "of backward" in str(error.value)


def test_one_wrong_element_is_found(ocl_device):
    (x,) = arguments([(300, 40)], ocl_device, torch.float32)
    store = r"(vstore\d+\(v\d+, 0, out0 \+ (i0)\);|\*\(__global float4\*\)\(out0 \+ (i0_first)\) = v\d+;)"
    with planted("pointwise", store, r"\1 if (\2\3 == 160) out0[163] += 0.01f;", "inference"):
        message = caught(lambda x: x * 2 + 1, [x])
    assert "element [4, 3]" in message and "1 of 12000 elements differ" in message, message


def test_the_saved_folder_shows_the_difference_again(ocl_device, cache):
    inputs = arguments([(33, 77), (77, 50)], ocl_device, torch.float32)
    with planted("gemm", STORED[0], STORED[1].replace("FACTOR", "1.001f")):
        message = caught(lambda x, y: torch.relu(x @ y), inputs)
    folder = Path(re.search(r"saved: (\S+)", message)[1])
    assert folder.is_relative_to(cache / "failed") and folder.stat().st_mode & 0o777 == 0o700
    assert "node contract" in (folder / "group.txt").read_text()
    saved = torch.load(folder / "inputs.pt")
    assert any(torch.equal(value, inputs[0].cpu()) for value in saved.values())
    done = fork_server.run([str(folder / "rerun.py")])
    assert done.returncode == 0, done.stderr
    assert "elements differ" in done.stdout and "the same values as in the saved run" in done.stdout, done.stdout
    text = (folder / "kernel.cl").read_text().replace("((acc) * 1.001f, i0", "(acc, i0")
    (folder / "kernel.cl").write_text(text)
    repaired = fork_server.run([str(folder / "rerun.py")])
    assert "as expected" in repaired.stdout and "elements differ" not in repaired.stdout, repaired.stdout


def test_a_wrong_eager_op_is_found(ocl_device):
    (x,) = arguments([(40, 51)], ocl_device, torch.float32)
    fault = changed([("", " sin(", " 1.001f * sin(")])  # C++ makes the plans of eager ops.
    with config.override(check=True), fault, pytest.raises(KernelResultError, match=r"aten\.sin"):
        torch.sin(x)


@torch.library.custom_op("check_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


class Lines(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture
def logged():
    log, handler = logging.getLogger("torch_ocl_compile.compile.check"), Lines()
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    yield handler.lines
    log.removeHandler(handler)
    log.setLevel(before)


def test_a_correct_program_raises_nothing_and_is_counted(ocl_device, logged):
    """The program has in-place updates, random numbers, changing sizes, an op without a kernel, and gathers."""

    def function(x, i):
        y = F.dropout(x, 0.3) + torch.rand_like(x)
        x.mul_(2)
        z = twice(x) + 1
        return y.sort(1)[0].cumsum(1), y[i], z, x.var(0), torch.nn.functional.pad(y, (1, 2)).argmax(1)

    compiled = torch.compile(function, backend="ocl", options=CHECK)
    for rows in (6, 9, 12):
        x = torch.randn(rows, 20).to(ocl_device)
        compiled(x, torch.tensor([0, 5, 5], device=ocl_device))
    lines = [line for line in logged if "launches checked" in line]
    assert lines and all(int(re.search(r"(\d+) launches checked", line)[1]) > 0 for line in lines), lines
    assert any("1 not: eager calls (check_test.twice.default) 1" in line for line in lines), lines


def test_a_training_step_raises_nothing(ocl_device):
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, groups=4), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.LayerNorm(800),
        torch.nn.Linear(800, 10),
    ).to(ocl_device)  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters())
    compiled = torch.compile(model, backend="ocl", options=CHECK)
    update = torch.compile(optimizer.step, backend="ocl", options=CHECK)
    x, y = torch.randn(4, 3, 16, 16).to(ocl_device), torch.arange(4).to(ocl_device)
    for dtype in (None, torch.bfloat16):
        with torch.autocast("ocl", dtype=dtype or torch.bfloat16, enabled=dtype is not None):
            loss = F.cross_entropy(compiled(x), y)
        loss.backward()
        update()
        optimizer.zero_grad()


@pytest.mark.parametrize("function", [F.gelu, F.silu, torch.tanh])
def test_a_short_function_raises_nothing(ocl_device, function):
    """GPUs have short functions for results of 16 bits, which round some results to the neighbour."""
    x = torch.linspace(-6, 6, 1 << 14, dtype=torch.bfloat16).to(ocl_device).requires_grad_()
    compiled = torch.compile(function, backend="ocl", options={**CHECK, "kernel_family": "group"})
    compiled(x).sum().backward()


def test_without_the_option_nothing_watches(ocl_device, monkeypatch):
    from torch_ocl_compile.compile import check

    monkeypatch.setattr(check.Checker, "before", lambda *_: pytest.fail("a launch was watched"))
    torch.compile(lambda x: x + 1, backend="ocl")(torch.ones(3, device=ocl_device))

# tests/device/tools/test_errors.py: bad input, broken drivers and caches: the message helps, and the process continues.
"""The errors of eager mode, such as device indices and broken runtimes, are tested in test_device_errors.py."""

import os
import stat
import textwrap
from pathlib import Path

import pytest
import torch

from tests import fork_server
from tests.device import faults
from torch_ocl_compile import _C, config, errors

ROOT = Path(__file__).resolve().parents[3]


def compiled(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, backend="ocl", dynamic=False, options=options)


def assert_still_works(device):
    assert compiled(lambda x: (x * 2).sum())(torch.ones(3, device=device)).item() == 6


def raised(function, *args):
    """Returns this project's error, which Dynamo may wrap, and the text of the raised error."""
    with pytest.raises(Exception) as caught:
        function(*args)
    error = caught.value
    while not isinstance(error, errors.OclError) and (error.__cause__ or error.__context__) is not None:
        error = error.__cause__ or error.__context__
    return error, str(caught.value)


# Mistakes of the caller


def test_device_that_does_not_exist(ocl_device):
    count = torch.ocl.device_count()
    error, text = raised(compiled(lambda: torch.ones(2, device=f"ocl:{count + 5}") + 1))
    there = [f"{i}: " for i in range(count)]
    assert all(part in text for part in (f"ocl:{count + 5}", f"there are {there[0]}", *there)), text
    assert isinstance(error, errors.ConfigError | RuntimeError)
    assert_still_works(ocl_device)


def test_cpu_tensor_in_a_compiled_graph(ocl_device):
    function = compiled(lambda x, y: x @ y + 1)
    _, text = raised(function, torch.ones(2, 2, device=ocl_device), torch.ones(2, 2))
    assert "cpu" in text and "ocl" in text, text
    assert_still_works(ocl_device)


def test_tensors_of_two_devices_in_a_compiled_graph(two_ocl_devices):
    a, b = two_ocl_devices
    _, text = raised(compiled(lambda x, y: x @ y + 1), torch.ones(2, 2, device=a), torch.ones(2, 2, device=b))
    assert a in text and b in text, text
    assert_still_works(a)
    assert_still_works(b)


def test_float64_where_there_is_none(ocl_device):
    index = torch.device(ocl_device).index
    x = torch.ones(3, device=ocl_device)
    _C.pretend_no_fp64(index, True)
    try:
        _, text = raised(compiled(lambda x: x.double().sum() * 2), x)
        assert "float64" in text and "float32" in text, text
        assert_still_works(ocl_device)
    finally:
        _C.pretend_no_fp64(index, False)


def test_unknown_option(ocl_device):
    error, text = raised(compiled(lambda x: x + 1, speed=3), torch.ones(2, device=ocl_device))
    assert isinstance(error, errors.ConfigError)
    assert "'speed'" in text and "max_autotune" in text, text
    assert_still_works(ocl_device)


def test_forbidden_fallback_names_op_and_line(ocl_device):
    error, text = raised(
        compiled(lambda x: torch.linalg.eigvalsh(x) * 2, fallback="error"), torch.ones(200, 200, device=ocl_device)
    )
    assert isinstance(error, errors.UnsupportedError)
    assert "aten._linalg_eigh" in text and "test_errors.py" in text, text
    assert_still_works(ocl_device)


def test_out_of_memory_in_a_compiled_graph(ocl_device):
    """An arena that is too large raises OutOfMemoryError with sizes. Tensors from before stay usable."""
    keep = torch.ones(5, device=ocl_device)
    function = compiled(lambda x: (x.expand(2**20, 2**22).exp() @ torch.ones(2**22, 1, device=x.device)).sum())
    with pytest.raises(torch.OutOfMemoryError, match=r"GiB|bytes|MiB"):
        function(torch.ones(1, device=ocl_device))
    assert keep.tolist() == [1] * 5
    assert_still_works(ocl_device)


# Errors of the driver


def test_kernel_that_does_not_build(ocl_device):
    x = torch.ones(3, device=ocl_device)
    with faults.changed(faults.NOT_C):
        error, text = raised(compiled(lambda x: x.sinh()), x)
    assert isinstance(error, errors.BuildError), type(error)
    device = torch.ocl.get_device_properties(ocl_device)
    for part in ("pointwise_", device.name, "aten.sinh", "test_errors.py", "unknown type name"):
        assert part in text, f"{part!r} is not in: {text}"
    folder = text.split("source and full log are in ")[1].split("/;")[0]
    saved = [f.read_text(errors="replace") for f in Path(folder).iterdir()]
    assert any("this is no C" in t for t in saved), "the source is saved"
    # The same graph without the fault works, and so does another graph.
    torch.testing.assert_close(compiled(lambda x: x.sinh())(x).cpu(), torch.ones(3).sinh())
    assert_still_works(ocl_device)


# Errors of the cache: one warning, and right results. tests/cpp has more: locks, folders and files that others can change.

# The program compiles two kernels without torch.compile, because importing Dynamo takes longer than the test.
PROGRAM = """
    import torch, torch_ocl_compile
    from torch_ocl_compile import _C, config
    config.configure_core()
    x = torch.arange(6.0).to({device!r})
    for factor in (2.0, 3.0):
        b = _C.ir.Builder()
        value = b.input(_C.ir.DType.kF32, [6], [1])
        b.output(b.op("mul", [value, b.constant(factor, _C.ir.DType.kF32)]), [1])
        plan = _C.exec.compile(b.finish(), x.device.index, [], {{}})
        assert torch.equal(plan.run([x])[0].cpu(), torch.arange(6.0) * factor)
    stats, counters = _C.exec.cache_stats(), _C.exec.build_counters()
    print(int(stats["enabled"]), stats["entries"], counters["built"], counters["from_binary"], counters["rejected"], counters["unkept"])
"""


class Run:
    def __init__(self, device, folder):
        done = fork_server.run(
            ["-c", textwrap.dedent(PROGRAM).format(device=device)],
            {**os.environ, "TORCH_OCL_CACHE_DIR": str(folder)},
            ROOT,
        )
        assert done.returncode == 0, done.stderr
        self.enabled, self.entries, self.built, self.from_binary, self.rejected, self.unkept = map(
            int, done.stdout.split()
        )
        self.warnings = [line for line in done.stderr.splitlines() if "cache" in line.lower()]


def damage(path, how):
    if how == "not a database":
        path.write_bytes(b"this was a kernel cache" * 100)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        data = bytearray(path.read_bytes())
        for at in range(len(data) // 2, len(data)):
            data[at] ^= 0x55
        path.write_bytes(bytes(data))


@pytest.mark.sampled(keep="")
@pytest.mark.parametrize("how", ["not a database", "cut", "flipped"])
def test_corrupt_cache(ocl_device, tmp_path, how):
    first = Run(ocl_device, tmp_path)
    assert first.enabled and first.built == 2 and not first.warnings
    for extra in tmp_path.glob("cache.sqlite-*"):
        extra.unlink()
    damage(tmp_path / "cache.sqlite", how)
    second = Run(ocl_device, tmp_path)
    assert second.built + second.from_binary >= 2
    assert len(second.warnings) <= 1, second.warnings
    third = Run(ocl_device, tmp_path)
    assert third.enabled and third.built == third.unkept, "the cache was begun anew"


def test_dumps_are_for_the_user_alone(ocl_device, tmp_path):
    folder = tmp_path / "a" / "dump"
    before = os.umask(0)
    try:
        with config.override(dump=str(folder)):
            compiled(lambda x: x.sinh() + 3)(torch.ones(3, device=ocl_device))
    finally:
        os.umask(before)
        config.configure_core()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700 and len(list(folder.iterdir())) > 3
    assert {stat.S_IMODE(p.stat().st_mode) for p in folder.iterdir()} == {0o600}


@pytest.mark.sampled(keep="")
def test_cache_switched_off(ocl_device, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_OCL_CACHE_SIZE_MB", "0")
    run = Run(ocl_device, tmp_path)
    assert run.built == 2 and not run.warnings and not list(tmp_path.glob("cache.sqlite*"))

# tests/device/runtime/test_device_errors.py: mistakes in the use of ocl devices; processes that start, fork and end.
import os
import re
import subprocess
import sys

import pytest
import torch

import torch_ocl_compile
from tests.device.own_process import ROOT, run_python
from torch_ocl_compile import errors


def index_of(device):
    return torch.device(device).index


# Bad input: the message names the mistake and the remedy, and the process stays usable.


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
        torch_ocl_compile._C.tensor_location(torch.ones(1))
    # As with other devices, 0-dimensional tensors and index tensors may be on the CPU.
    assert (x + torch.tensor(2.0)).tolist() == [[3, 3], [3, 3]]
    assert x[torch.tensor([1])].tolist() == [[1, 1]]


def test_tensors_on_two_ocl_devices(two_ocl_devices):
    a, b = (torch.ones(2, device=d) for d in two_ocl_devices)
    for attempt in (lambda: a + b, lambda: torch.cat([a, b]), lambda: torch.dot(a, b)):
        with pytest.raises(RuntimeError, match=r"ocl:\d.*ocl:\d"):
            attempt()


def test_float64_where_there_is_none(ocl_device):
    core = torch_ocl_compile._C
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
        fresh=True,
        TORCH_OCL_DEVICES="nonesuch",
    )
    assert status == 0, err


def test_runtimes_that_the_loader_leaves_out(tmp_path):
    """The loader of the system says nothing of a runtime that does not open. The list of devices says why."""
    garbage = tmp_path / "libgarbage.so"
    garbage.write_text("not a library")
    lines = {"dangling": "/nowhere/libgone.so", "garbage": str(garbage), "empty": "", "other": "libm.so.6"}
    for name, line in lines.items():
        (tmp_path / f"{name}.icd").write_text(f"{line}\n")
    status, out, err = run_python(
        "import torch; print(*torch.ocl.device_problems(), sep='\\n')", OCL_ICD_VENDORS=str(tmp_path)
    )
    assert status == 0, err
    for sentence in (
        "dangling.icd: /nowhere/libgone.so: does not open: .*No such file",
        "garbage.icd: .*libgarbage.so: does not open: .*(too short|invalid ELF)",
        "empty.icd: is empty; its first line should be the path of a runtime's library",
        "other.icd: libm.so.6: is no OpenCL runtime",
    ):
        assert re.search(sentence, out), out


def test_autoload_through_the_entry_point(tmp_path):
    info = tmp_path / "torch_ocl_compile_test-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-ocl-compile-test\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nocl_test = torch_ocl_compile:_autoload\n")
    path = os.pathsep.join([str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")])
    # An installed package, too, has an entry point, whose first run of the package without autoload is dropped.
    for autoload, program in (
        ("always", "import torch; torch.ocl.current_device"),
        ("always", "import torch_ocl_compile, torch; torch.ocl.current_device"),
        ("never", "import torch, torch_ocl_compile as t; torch.ocl.current_device; t.errors.OclError; t._C; t.config"),
    ):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "TORCH_OCL_AUTOLOAD": autoload},
        )
        assert done.returncode == 0, done.stderr


def test_dynamo_traces_the_current_device(ocl_device):
    def f(x):
        with torch.ocl.device(index_of(ocl_device)):
            return x + torch.ocl.current_device()

    fullgraph = not torch.__version__.startswith("2.11")  # Dynamo of torch 2.11 cannot trace the context manager.
    got = torch.compile(f, backend="aot_eager", fullgraph=fullgraph)(torch.ones(2, device=ocl_device))
    assert got.tolist() == [1 + index_of(ocl_device)] * 2


def test_import_loads_no_runtime():
    status, _, err = run_python(
        """
        import torch
        torch.manual_seed(0)
        torch.ones(2).sum()
        libraries = open('/proc/self/maps').read()
        assert 'libintelocl' not in libraries and 'libpocl' not in libraries
        assert not torch.ocl.is_initialized()
    """,
        fresh=True,
    )
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

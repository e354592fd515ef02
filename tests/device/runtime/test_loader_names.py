# tests/device/runtime/test_loader_names.py: OpenCL is found under other names than libOpenCL.so.1, and by the option `library`.
from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.device.own_process import run_python

pytestmark = pytest.mark.sampled(every=1)

PROGRAM = """
import re, torch, torch_ocl_compile
print(*torch.ocl.device_problems(), sep="\\n")
print("devices", torch.ocl.device_count())
if torch.ocl.device_count():
    assert torch.compile(lambda x: x.exp().sum(), backend="ocl")(torch.zeros(5, device="ocl")).item() == 5
    print("mapped", *sorted(set(re.findall(r"/\\S*\\.so\\S*", open("/proc/self/maps").read()))))
"""


def loader() -> Path:
    """Returns the OpenCL loader of this process."""
    assert torch.ocl.device_count() > 0
    found = re.search(r"/\S*/libOpenCL\.so\S*", Path("/proc/self/maps").read_text())
    if found is None:
        pytest.skip("this machine has no library libOpenCL.so.1")
    return Path(found.group())


def without_the_loader(program: str, folder: Path) -> str:
    """Runs a program where every libOpenCL.so is hidden, but not the libraries of `folder`."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not let us hide its libraries (unshare -m)")
    folders = {loader().parent, loader().resolve().parent, Path(sys.prefix) / "lib"}
    hidden = {p.resolve() for f in folders for p in f.glob("libOpenCL.so*") if p.resolve().is_file()}
    script = " && ".join(
        [*(f"mount --bind /dev/null {p}" for p in sorted(hidden)), f'exec "{sys.executable}" -c "$PROGRAM"']
    )
    environment = {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PROGRAM": program, "LD_LIBRARY_PATH": str(folder)}
    environment |= {"TORCH_OCL_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["libOpenCL.so", "libGLES_mali.so", "libmali.so"])
def test_another_name(tmp_path: Path, name: str) -> None:
    shutil.copy(loader(), tmp_path / name)
    out = without_the_loader(PROGRAM, tmp_path)
    assert str(tmp_path / name) in out.splitlines()[-1], out


def test_all_names_are_told(tmp_path: Path) -> None:
    """A library without OpenCL's functions has a reason of its own."""
    (tmp_path / "empty.c").write_text("int nothing;")
    library = tmp_path / "libGLES_mali.so"
    subprocess.run(["cc", "-shared", "-fPIC", str(tmp_path / "empty.c"), "-o", str(library)], check=True)
    out = without_the_loader(PROGRAM, tmp_path)
    assert "devices 0" in out
    missing = (
        r"libOpenCL\.so, /vendor/lib64/libOpenCL\.so, .*libmali\.so, .*: cannot open shared object file: No such file"
    )
    assert re.search(rf"no OpenCL loader was found: .*{missing}", out), out
    assert "libGLES_mali.so: lacks OpenCL's functions" in out, out


def test_the_option(tmp_path: Path) -> None:
    library = tmp_path / "libany.so"
    shutil.copy(loader(), library)
    status, out, err = run_python(PROGRAM, TORCH_OCL_LIBRARY=str(library), TORCH_OCL_CACHE_DIR=str(tmp_path))
    assert status == 0, err
    assert str(library) in out.splitlines()[-1].split() and str(loader()) not in out.splitlines()[-1].split(), out


def test_the_option_names_no_library(tmp_path: Path) -> None:
    """Nothing else is opened then."""
    status, out, err = run_python(PROGRAM, TORCH_OCL_LIBRARY=f"{tmp_path}/none.so")
    assert status == 0, err
    assert "devices 0" in out and f"no OpenCL loader was found: {tmp_path}/none.so: cannot open" in out, out

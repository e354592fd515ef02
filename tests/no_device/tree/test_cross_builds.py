# tests/no_device/tree/test_cross_builds.py: the C++ core for Windows, in Wine, and for Arm, in QEMU; which SQLite each build links.
from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    "script",
    [
        pytest.param("windows.sh", marks=pytest.mark.needs("wine", "sweep")),
        pytest.param("arm.sh", marks=pytest.mark.needs("qemu", "sweep")),
    ],
)
def test_the_core_builds_for_other_machines_and_its_tests_pass_there(script):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # cmake, ninja and ctest of pip
    done = subprocess.run(
        [ROOT / "scripts" / script],
        env=os.environ | {"PATH": path, "VIRTUAL_ENV": sys.prefix, "WERROR": "ON"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 3:
        pytest.skip(done.stderr.strip().splitlines()[-1])
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-5000:]
    assert "100% tests passed" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="names of libraries on Linux")
@pytest.mark.parametrize(("with_python", "linked"), [("OFF", "libsqlite3.a"), ("ON", "libsqlite3.so")])
def test_the_library_alone_has_sqlite_inside_and_the_extension_shares_one(tmp_path, with_python, linked):
    for name in ("libsqlite3.a", "libsqlite3.so"):
        (tmp_path / name).touch()
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    cmake = shutil.which("cmake", path=path)
    if cmake is None:
        pytest.skip("needs cmake")
    options = {"OCL_PYTHON": with_python, "OCL_LIBRARY_HINTS": tmp_path, "Python_EXECUTABLE": sys.executable}
    command = [cmake, "-S", ROOT, "-B", tmp_path / "build", *(f"-D{name}={value}" for name, value in options.items())]
    done = subprocess.run(command, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-5000:]
    assert f"-- SQLite: {tmp_path / linked}\n" in done.stdout

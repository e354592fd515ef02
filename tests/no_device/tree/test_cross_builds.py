# tests/no_device/tree/test_cross_builds.py: the C++ core for Windows, whose tests run in Wine, and for Arm, whose tests run in QEMU.
from __future__ import annotations

import os
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

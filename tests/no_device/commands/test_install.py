# tests/no_device/commands/test_install.py: a wheel's version and dependencies, and messages on a machine without OpenCL.
from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import torch
from packaging.requirements import Requirement

import torch_ocl_compile
from torch_ocl_compile import _C

tomllib = pytest.importorskip("tomllib")  # from Python 3.11 on
ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

# Runs where the OpenCL loader and pip's runtimes are hidden, as on a machine without OpenCL.
WITHOUT_OPENCL = """
import torch, torch_ocl_compile
from torch_ocl_compile.errors import ConfigError
assert torch.ocl.device_count() == 0 and not torch.ocl.is_available()
try:
    torch.ones(2, device="ocl")
except ConfigError as error:
    print(error)
"""


def provider():
    spec = importlib.util.spec_from_file_location("wheel_metadata", ROOT / "scripts" / "wheel" / "wheel_metadata.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def settings():
    (entry,) = PROJECT["tool"]["dynamic-metadata"]
    return {name: value for name, value in entry.items() if name != "provider"}


def test_a_wheel_asks_for_the_minor_version_of_torch_that_it_was_built_with():
    found = provider().dynamic_metadata(settings(), {})
    major, minor = (int(part) for part in torch.__version__.split(".")[:2])
    assert found["version"] == f"{torch_ocl_compile.__version__}+torch{major}.{minor}"
    assert found["dependencies"][0] == f"torch>={major}.{minor},<{major}.{minor + 1}"
    assert {re.match(r"[a-z]+", d)[0] for d in found["dependencies"]} == {"torch", "click", "rich", "platformdirs"}


def test_a_source_distribution_asks_for_any_torch_that_we_support(monkeypatch):
    module = provider()

    def missing(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(module, "version", missing)
    found = module.dynamic_metadata(settings(), {})
    assert found["version"] == torch_ocl_compile.__version__
    assert found["dependencies"][0] == next(r for r in PROJECT["build-system"]["requires"] if r.startswith("torch"))


def test_the_module_and_the_worker_need_no_opencl_library():
    for file in (Path(_C.__file__), Path(_C.__file__).parent / "ocl_build_worker"):
        needed = subprocess.run(["ldd", str(file)], capture_output=True, text=True, check=True).stdout
        assert "libc.so" in needed and "libOpenCL" not in needed


def test_a_machine_without_opencl_imports_the_package_and_is_told_what_to_do(tmp_path):
    libraries = [Path(line.split()[-1]) for line in _mapped() if re.search(r"/lib(OpenCL|intelocl|pocl)\.so", line)]
    libraries += [
        p for p in {library.parent / "libOpenCL.so.1" for library in libraries} if p.is_file()
    ]  # The OpenCL loader that pip installs.
    vendors = [Path(sys.prefix, "etc", "OpenCL", "vendors"), Path("/etc/OpenCL/vendors")]
    hide = [f"mount --bind /dev/null {p.resolve()}" for p in libraries]
    hide += [f"mount --bind {tmp_path} {p.resolve()}" for p in vendors if p.is_dir()]
    script = " && ".join([*hide, f'exec "{sys.executable}" -c "$PROGRAM"'])
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system does not let us hide its libraries (unshare -m)")
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", script], env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "PROGRAM": WITHOUT_OPENCL},
        capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, *problems = done.stdout.strip().splitlines()
    assert first.startswith("no OpenCL device was found; install a runtime: pip install torch-ocl-compile[cpu]")
    assert any("no OpenCL loader was found" in line for line in problems), problems


def _mapped() -> list[str]:
    """Lines of /proc/self/maps that name libraries. Listing the devices loads the runtimes first."""
    assert torch.ocl.device_count() > 0
    return sorted({line for line in Path("/proc/self/maps").read_text().splitlines() if ".so" in line})


@pytest.mark.parametrize("installed, wanted, installs", [
    ("", "", False), ("", "torch==2.12.1", True), ("torch==2.12.1", "torch==2.12.1", False), ("torch==2.12.1", "", True)])  # fmt: skip
def test_another_torch_is_installed_into_an_existing_environment(tmp_path, installed, wanted, installs):
    """`make wheel TORCH=...` used to take the torch that was there."""
    vision = re.search(r"^USUAL_TORCHVISION := (\S+)$", (ROOT / "Makefile").read_text(), re.M).group(1)
    (tmp_path / ".setup").write_text(f"{installed} {vision}\n" if installed else "")
    environment = {
        name: value for name, value in os.environ.items() if name not in ("TORCH", "TORCHVISION", "MAKEFLAGS")
    }
    command = ["make", "-n", "wheel", f"VENV={tmp_path}", *([f"TORCH={wanted}"] if wanted else [])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=environment)
    assert ("install_python.sh" in done.stdout) == installs, done.stdout


@pytest.mark.parametrize(
    "machine, runtimes", [("x86_64", {"intel-opencl-rt", "intel-cmplr-lib-rt"}), ("aarch64", set())]
)
def test_a_runtime_for_the_cpu_is_wanted_only_where_pip_has_one(machine, runtimes):
    """On Arm, pip has none of these packages, and an installation that asks for one fails."""
    wanted = map(Requirement, PROJECT["project"]["optional-dependencies"]["cpu"])
    assert {r.name for r in wanted if r.marker is None or r.marker.evaluate({"platform_machine": machine})} == runtimes


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_environment_of_make_gets_a_runtime_for_this_processor(tmp_path, machine):
    """Packages that pip and apt would install. pip and apt are programs here that only print their arguments."""
    for program, does in {
        "uname": f"echo {machine}",
        "ls": "exit 1",  # No GPU, and no header of Python.
        "dpkg-query": "exit 1",
        "id": "echo 0",
        "apt-get": 'echo "$@" >&2',
        "venv/bin/python": 'echo "$@"',
    }.items():
        path = tmp_path / program
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{does}\n")
        path.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}

    def output(script, *arguments):
        command = ["bash", ROOT / "scripts" / script, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return done.stdout + done.stderr

    assert ("intel-opencl-rt" in output("install_python.sh", tmp_path / "venv")) == (machine == "x86_64")
    assert ("pocl-opencl-icd" in output("install_system.sh")) == (machine == "aarch64")

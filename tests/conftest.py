# tests/conftest.py: the fixture `ocl_device`, every OpenCL device in turn, named in the test's id; golden files.
"""One pytest process sees all runtimes' devices at once, as ocl:0, ocl:1, ... A test that takes `ocl_device` runs on
each of them, or on those that `--ocl-devices` selects."""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # a checkout that is not installed


def pytest_addoption(parser):
    parser.addoption(
        "--ocl-devices",
        default="all",
        help="devices for tests with `ocl_device`: all, none, or indices and parts of platform or device names",
    )
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing with them"
    )


def ocl_devices(selection="all"):
    """(device string, name for the test id) of the selected devices."""
    if selection == "none":
        return []
    try:
        import torch

        import torch_ocl_compile  # noqa: F401
    except ImportError:
        return []
    found = []
    for index in range(torch.ocl.device_count()):
        p = torch.ocl.get_device_properties(index)
        label = f"{p.platform_name} {p.name}".lower()
        wanted = [part.strip().lower() for part in selection.split(",") if part.strip()]
        if wanted == ["all"] or any(part == str(index) if part.isdigit() else part in label for part in wanted):
            found.append((f"ocl:{index}", f"ocl{index}-{_short(p.platform_name)}"))
    return found


def _short(platform_name):
    """ "Intel(R) OpenCL" -> "intel", "Portable Computing Language" -> "pocl"."""
    if platform_name.startswith("Portable Computing"):
        return "pocl"
    return re.sub(r"\(.*?\)", "", platform_name.lower()).split()[0]


def pytest_generate_tests(metafunc):
    if "ocl_device" in metafunc.fixturenames:
        devices = ocl_devices(metafunc.config.getoption("--ocl-devices"))
        if devices:
            metafunc.parametrize(
                "ocl_device", [d for d, _ in devices], ids=[name for _, name in devices], scope="session"
            )
        else:
            skip = pytest.mark.skip(reason="no OpenCL device selected or found: pip install torch-ocl-compile[cpu]")
            metafunc.parametrize("ocl_device", [pytest.param("ocl:0", marks=skip)], ids=["no-device"])


@pytest.fixture
def two_ocl_devices(request):
    """The first two selected devices, or a skip."""
    devices = [d for d, _ in ocl_devices(request.config.getoption("--ocl-devices"))]
    if len(devices) < 2:
        pytest.skip("needs two OpenCL devices")
    return devices[:2]


@pytest.fixture
def golden(request):
    """`golden("name.txt", text)` compares with tests/golden/name.txt; --update-golden writes it."""
    folder = Path(__file__).parent / "golden"

    def check(name, text):
        path = folder / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing: pytest --update-golden writes it"
        assert text == path.read_text(), f"{path} differs: pytest --update-golden rewrites it; review the diff"

    return check

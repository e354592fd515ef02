# tests/conftest.py: the fixture `ocl_device`, which runs a test on every OpenCL device; golden files; limits on memory.
"""One pytest process sees the devices of all runtimes, as ocl:0, ocl:1 and so on. A test that takes `ocl_device` runs
on each of them, or on those that `--ocl-devices` selects; the test's id names the device."""

import contextlib
import ctypes
import gc
import os
import re
import shutil
import sys
import tempfile
import time
import zlib
from collections import Counter
from pathlib import Path

# These are set before torch is imported. A worker of pytest-xdist inherits them from the process that started it,
# including the cache.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# For a checkout that is not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests import kept_kernels

if "TORCH_OCL_CACHE_DIR" not in os.environ:
    os.environ["TORCH_OCL_CACHE_DIR"] = tempfile.mkdtemp(prefix="torch_ocl_tests_")
    os.environ["TORCH_OCL_TESTS_OWN_CACHE"] = str(os.getpid())
    kept_kernels.load(Path(os.environ["TORCH_OCL_CACHE_DIR"]))

import pytest

from tests.coverage import Counting

NO_DEVICE = "no OpenCL device selected or found: pip install torch-ocl-compile[cpu]"
# Unless a mark says otherwise, the first device runs one case in n of functions with more than MANY[n] cases, the other devices
# one case in OTHERS. What runs on no device runs whole.
MANY, OTHERS = {16: 24, 8: 12, 4: 4, 2: 2}, 24
# The names that `pytest.mark.needs(...)` accepts, and whether a device with these properties fulfils them.
NEEDS = {
    "cpu": lambda device: device.is_cpu,
    "fp64": lambda device: device.has_fp64,
    "mma": lambda device: device.has_mma,
    "wgmma": lambda device: device.has_wgmma,
    "cuda": lambda device: "NVIDIA" in device.platform_name and torch_has_cuda(),
}


def torch_has_cuda():
    import torch

    return torch.cuda.is_available()


# Cases begin for at least these seconds, whatever `--until` says: on no machine may a run end without having tested anything.
LEAST_SECONDS = 600
TIME_IS_UP = "time is up (--until)"

# Names that `needs` accepts besides: the programs that the machine must have.
PROGRAMS = {"wine": ("x86_64-w64-mingw32-g++", "wine"), "qemu": ("aarch64-linux-gnu-g++", "qemu-aarch64")}


def pytest_addoption(parser):
    parser.addoption(
        "--ocl-devices",
        default="all",
        help="devices for tests with `ocl_device`: all, none, or indices and parts of platform or device names",
    )
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing with them"
    )
    parser.addoption(
        "--sweep", action="store_true", help="every sample on every device, where a plain run takes some (make sweep)"
    )
    parser.addoption(
        "--until",
        type=int,
        metavar="SECONDS",
        help="no case begins after this time (seconds since 1970), so that a run on a slow machine ends; the last line says how many"
        " were left out. Each day begins with other files",
    )


def pytest_configure(config):
    _extend_until(config)
    config.pluginmanager.register(Counting(), "counting")
    config.addinivalue_line(
        "markers",
        f"needs(what, ...): not on devices that lack one of {', '.join(NEEDS)}; not on machines that lack one of"
        f" {', '.join(PROGRAMS)}; sweep: only by --sweep",
    )
    config.addinivalue_line(
        "markers",
        "sampled(first=n, every=m, keep=pattern): on the first device every n-th case, on the others every m-th (0: none), and those"
        f" that match; all by --sweep. Without it: on the first device fewer of more than {min(MANY.values())}; one in {OTHERS} on others",
    )


def pytest_collection_modifyitems(config, items):
    """Deselects tests that this machine cannot run, and samples the rest.

    Deselecting keeps a skip meaningful: it always stands for a test that could have run. Every OpenCL runtime
    compiles every kernel again, some of them slowly, so devices other than the first run only some cases. A function with
    cases keeps at least one of them on the first device.
    """
    kept, left_out = [], []
    sweep = config.getoption("--sweep")
    devices = [device for device, _ in ocl_devices(config.getoption("--ocl-devices"))]
    cases = Counter(map(_function_and_device, items))
    seen = set()
    for item in items:
        which = _function_and_device(item)
        device = which[1]
        wanted = _can_run(item, device if devices else None, len(devices), sweep)
        mark = item.get_closest_marker("sampled")
        if wanted and not sweep:
            name, on_first = re.sub(r"ocl\d+-[a-z]+", "", item.name), device is None or [device] == devices[:1]
            how = mark.kwargs if mark else {"first": _one_in(cases[which]) if device else 1, "every": OTHERS}
            wanted = _in_sample(name, on_first, **how) or (on_first and which not in seen)
        if wanted:
            seen.add(which)
        (kept if wanted else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept
    if config.getoption("--until"):
        _begin_elsewhere(items, config.getoption("--until") // 86400)


def _begin_elsewhere(items, day):
    """Rotates the files: what a slow machine leaves out at the end of a run is another part on another day."""
    files = list(dict.fromkeys(item.path for item in items))
    begin = day * 37 % max(len(files), 1)  # Neighbouring days begin far from each other.
    place = {path: (i - begin) % len(files) for i, path in enumerate(files)}
    items.sort(key=lambda item: place[item.path])


def _extend_until(config):
    if config.getoption("--until"):
        config.option.until = max(config.option.until, int(time.time()) + LEAST_SECONDS)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    until = item.config.getoption("--until")
    if until and time.time() > until:
        pytest.skip(TIME_IS_UP)


def pytest_terminal_summary(terminalreporter):
    late = sum(TIME_IS_UP in str(report.longrepr) for report in terminalreporter.stats.get("skipped", []))
    if late:
        terminalreporter.write_line(f"{late} cases did not run: {TIME_IS_UP}", yellow=True)


def _one_in(cases):
    return next((one_in for one_in, more_than in MANY.items() if cases > more_than), 1)


def _function_and_device(item):
    device = item.callspec.params.get("ocl_device") if hasattr(item, "callspec") else None
    return item.nodeid.partition("[")[0], device


def _can_run(item, device, count, sweep):
    needs = {what for mark in item.iter_markers("needs") for what in mark.args}
    if "two_ocl_devices" in item.fixturenames and count == 1:
        return False
    if "sweep" in needs and not sweep:
        return False
    needs.discard("sweep")
    if not all(shutil.which(program) for what in needs & PROGRAMS.keys() for program in PROGRAMS[what]):
        return False
    needs -= PROGRAMS.keys()
    unknown = needs - NEEDS.keys()
    assert not unknown, f"{item.nodeid} needs {unknown}, and there are {', '.join([*NEEDS, *PROGRAMS])}, sweep"
    if device is None or not needs:
        return True
    import torch

    properties = torch.ocl.get_device_properties(device)
    return all(NEEDS[what](properties) for what in needs)


def _in_sample(name, on_first, first=1, every=0, keep=""):
    """Decides by a hash of the case's name, so that adding a case does not change the decision for others."""
    one_in = first if on_first else every
    return bool((one_in and zlib.crc32(name.encode()) % one_in == 0) or (keep and re.search(keep, name)))


def pytest_unconfigure(config):
    if os.environ.get("TORCH_OCL_TESTS_OWN_CACHE") == str(os.getpid()):
        kept_kernels.store(Path(os.environ["TORCH_OCL_CACHE_DIR"]))
        shutil.rmtree(os.environ["TORCH_OCL_CACHE_DIR"], ignore_errors=True)


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Uses one thread, because the test workers share the cores."""
    try:
        import torch
    except ImportError:
        return
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def sweep(request):
    """Returns whether to run every sample (option --sweep)."""
    return request.config.getoption("--sweep")


@pytest.fixture(scope="session", autouse=True)
def dynamo_takes_less_time():
    """Switches off work that only slows the tests down.

    Dynamo times the guards of each graph for its log, after flushing the processor's caches: 30 ms for each of
    thousands of graphs. Each reset collects garbage, which need not look at objects that exist since the imports.
    """
    try:
        from torch._dynamo import guards
    except ImportError:
        return
    gc.collect()
    gc.freeze()
    if hasattr(guards, "profile_guard_manager"):
        guards.profile_guard_manager = lambda *_: 0.0


GROWTH = 200 << 20  # The bytes by which a process may grow before it drops its compiled plans.


def resident_bytes():
    statm = Path("/proc/self/statm")
    return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") if statm.exists() else 0


def drop_what_was_compiled():
    if "torch._dynamo" not in sys.modules or "torch_ocl_compile" not in sys.modules:
        return
    import torch

    from torch_ocl_compile import _C

    torch._dynamo.reset()
    torch._subclasses.fake_tensor.FakeTensorMode.cache_clear()
    # Fewer plans are worth keeping for the next module.
    if _C.exec.live_counts()["eager_plans"] > 256:
        _C.forget_eager_plans()
    gc.collect()
    torch.ocl.empty_cache()
    # glibc keeps freed memory that lies between blocks in use, unless it is told to return it.
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)


@pytest.fixture(scope="module", autouse=True)
def what_a_module_compiled_goes():
    """Drops compiled plans after each module: a plan holds 0.5 to 2 MB of native code, and a process runs many tests."""
    yield
    drop_what_was_compiled()


@pytest.fixture(scope="session")
def memory_after_cleaning():
    return [resident_bytes()]


@pytest.fixture(autouse=True)
def memory_stays_bounded(memory_after_cleaning):
    """Bounds the memory within modules of a thousand cases, too."""
    yield
    if resident_bytes() > memory_after_cleaning[0] + GROWTH:
        drop_what_was_compiled()
        memory_after_cleaning[0] = resident_bytes()


def ocl_devices(selection="all"):
    """Returns (device string, name for the test id) of the selected devices."""
    if selection == "none":
        return []
    try:
        import torch

        import torch_ocl_compile  # noqa: F401
    except ImportError:
        return []
    wanted = [part.strip().lower() for part in selection.split(",") if part.strip()]
    found, met = [], {"all"}
    for index in range(torch.ocl.device_count()):
        p = torch.ocl.get_device_properties(index)
        label = f"{p.platform_name} {p.name} {_short(p.platform_name)}".lower()
        here = {part for part in wanted if part == "all" or (part == str(index) if part.isdigit() else part in label)}
        met |= here
        if here:
            found.append((f"ocl:{index}", f"ocl{index}-{_short(p.platform_name)}"))
    if not met.issuperset(wanted):
        raise pytest.UsageError(f"--ocl-devices {selection}: no device here is {', '.join(sorted(set(wanted) - met))}")
    return found


def _short(platform_name):
    """Abbreviates a platform's name: "Intel(R) OpenCL" -> "intel", "Portable Computing Language" -> "pocl"."""
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
            skip = pytest.mark.skip(reason=NO_DEVICE)
            metafunc.parametrize("ocl_device", [pytest.param("ocl:0", marks=skip)], ids=["no-device"])


@pytest.fixture(scope="session")
def selected_devices(request):
    """The selected devices. Without any, the test is skipped. For tests that run once, whatever the devices."""
    devices = [d for d, _ in ocl_devices(request.config.getoption("--ocl-devices"))]
    if not devices:
        pytest.skip(NO_DEVICE)
    return devices


@pytest.fixture
def own_cache(tmp_path):
    """Gives the test an empty cache, whose folder it returns, and drops the plans of eager ops in memory."""
    from torch_ocl_compile import _C, config
    from torch_ocl_compile.tuning import table

    def forget():
        config.configure_core()
        table.forget()
        _C.forget_eager_plans()

    with config.override(cache_dir=str(tmp_path)):
        forget()
        yield tmp_path
    forget()


@pytest.fixture
def two_ocl_devices(selected_devices):
    """The first two selected devices. With one device the test is deselected, without any it is skipped."""
    return selected_devices[:2]


@pytest.fixture
def two_devices():
    """For tests that use ocl:0 and ocl:1 by their names, and may leave another device current."""
    import torch

    if torch.ocl.device_count() < 2:
        pytest.skip("needs two OpenCL devices: pip install torch-ocl-compile[cpu], and PoCL")
    yield
    torch.ocl.set_device(0)


@pytest.fixture
def golden(request):
    """`golden("name.txt", text)` compares the text with tests/golden/name.txt; with --update-golden it writes the file."""
    folder = Path(__file__).parent / "golden"

    def check(name, text):
        path = folder / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert path.exists(), f"{path} is missing: pytest --update-golden writes it"
        assert text == path.read_text(), f"{path} differs: pytest --update-golden rewrites it; review the diff"

    return check


@pytest.fixture
def on_page(request):
    """`on_page("options.md", table)` compares a Markdown table with the one in docs/; with --update-golden it writes it there."""
    folder = Path(__file__).resolve().parents[1] / "docs"

    def check(name, table):
        path = folder / name
        text = path.read_text()
        if request.config.getoption("--update-golden"):
            begin = text.index(table.splitlines()[0] + "\n")
            end = text.find("\n\n", begin) + 1 or len(text)
            path.write_text(text[:begin] + table + text[end:])
        assert table in path.read_text(), f"a table of docs/{name} differs: pytest --update-golden rewrites it"

    return check

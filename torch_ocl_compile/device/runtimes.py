# torch_ocl_compile/device/runtimes.py: finds OpenCL runtimes that pip installed.
"""No environment variable and no root access is needed. A wheel such as intel-opencl-rt puts its library into
<prefix>/lib and an .icd file into <prefix>/etc/OpenCL/vendors. The path in that file is a path of the machine that
built the wheel, so only its last part is used. The loader, which csrc/runtime/opencl/loader.h opens, finds the system's
runtimes.
"""

from __future__ import annotations

import os
import site
import sys
from importlib import metadata
from pathlib import Path

# Packages with a runtime. If no prefix has a runtime, they are asked for their files (pip install --target, zipapps).
_DISTRIBUTIONS = ("intel-opencl-rt", "pocl-binary-distribution")


def prefixes() -> list[Path]:
    """Returns the folders into which pip installs data files: of this environment, of the base environment, of the
    user.
    """
    found = [Path(sys.prefix), Path(sys.base_prefix)]
    if site.ENABLE_USER_SITE:
        found.append(Path(site.getuserbase()))
    system = {Path("/"), Path("/usr"), Path("/usr/local")}
    return [p for p in dict.fromkeys(found) if p not in system]


def closed_gpus(root: Path = Path("/dev")) -> list[str]:
    """Returns a line if there are GPUs that this user may not open. Their drivers then list no device, without an error."""
    files = [root / "kfd", *sorted(root.glob("dri/renderD*"))]
    closed = [str(file) for file in files if file.exists() and not os.access(file, os.R_OK | os.W_OK)]
    if not closed:
        return []
    return [f"you may not open {', '.join(closed)}: run `sudo usermod -aG render,video $USER`, then log in again"]


def vendor_libraries() -> list[str]:
    """Returns the paths of the OpenCL runtimes that pip installed, without emulators of other hardware."""
    found: dict[str, None] = {}
    for prefix in prefixes():
        for icd in sorted((prefix / "etc" / "OpenCL" / "vendors").glob("*.icd")):
            library = _library_of(icd, prefix)
            if library is not None and "_emu" not in library.name:
                found[str(library)] = None
        intel = prefix / "lib" / "libintelocl.so"
        if intel.exists():
            found[str(intel)] = None
    return list(found) or _from_distributions("libintelocl.so", "libpocl.so")


def _library_of(icd: Path, prefix: Path) -> Path | None:
    lines = icd.read_text(errors="replace").splitlines()
    if not lines:
        return None
    named = Path(lines[0].strip())
    for candidate in (named, prefix / "lib" / named.name):
        if candidate.is_absolute() and candidate.exists():
            return candidate
    return None


def _from_distributions(*names: str) -> list[str]:
    found: dict[str, None] = {}
    for name in _DISTRIBUTIONS:
        try:
            files = metadata.distribution(name).files or []
        except metadata.PackageNotFoundError:
            continue
        for file in files:
            if file.name in names:
                found[str(Path(str(file.locate())).resolve())] = None
    return list(found)

# torch_ocl_compile/tools/cache_file.py: exports the cache of one device to a file, for another machine of the same kind.
"""The file is a zip archive. Its first entry, `header.json`, names the device, driver and version. A file for another
one is refused after its header is read. The other entries are the kernels' binaries and the measured choices.

The binaries are native code. Import only files from people whom you would let run programs.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path

from torch_ocl_compile import _C, __version__
from torch_ocl_compile.errors import ToolError
from torch_ocl_compile.tuning import table

FORMAT = 1
HEADER, KERNELS, CHOICES = "header.json", "kernels/", "choices.json"


@dataclass(frozen=True)
class Header:
    """What a file is for. `prefix`: the prefix of its kernels' keys, a hash of device, driver and build options."""

    format: int
    version: str
    device: str
    platform: str
    driver: str
    units: int
    prefix: str


@dataclass(frozen=True)
class Counts:
    """Numbers of entries that were written or read."""

    kernels: int
    choices: int


def header_of(index: int) -> Header:
    """The header of files for a device of this machine."""
    p = _C.device_properties(index)
    return Header(FORMAT, __version__, p["name"], p["platform_name"], p["driver"], p["multi_processor_count"],
                  _C.exec.store_prefix(index))  # fmt: skip


def export_cache(index: int, path: Path) -> Counts:
    """Writes a device's entries of the cache to a file."""
    header = header_of(index)
    keys = [key for key in _C.exec.cache_keys("kernels") if key.startswith(header.prefix)]
    choices = {name: value for name, value in _C.exec.tuning_rows() if _is_choice(name, index)}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(HEADER, json.dumps(asdict(header), indent=1))
        archive.writestr(CHOICES, json.dumps(choices))
        written = 0
        for key in keys:
            # An empty value means that the entry was damaged.
            if value := _C.exec.cache_find("kernels", key):
                archive.writestr(KERNELS + key, value)
                written += 1
    return Counts(written, len(choices))


def import_cache(index: int, path: Path) -> Counts:
    """Adds the entries of a file to the cache. ToolError if the file is for another device, driver or version, or if
    the cache cannot take all entries."""
    here = header_of(index)
    try:
        with zipfile.ZipFile(path) as archive:
            _check(json.loads(archive.read(HEADER)), here, path)
            entries = [entry for entry in archive.infolist() if entry.filename.startswith(KERNELS + here.prefix)]
            choices = {
                name: value for name, value in json.loads(archive.read(CHOICES)).items() if _is_choice(name, index)
            }
            kernels = {entry.filename.removeprefix(KERNELS): archive.read(entry) for entry in entries}
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, AttributeError, TypeError) as error:
        raise ToolError(f"{path} is no file of `torch-ocl cache export`, or is damaged: {error}") from error
    before = _C.exec.cache_stats()["stores"]
    for key, value in kernels.items():
        _C.exec.cache_store("kernels", key, value)
    for name, value in choices.items():
        _C.exec.cache_store("tuning", name, value)
    table.forget()
    stats, all_entries = _C.exec.cache_stats(), len(kernels) + len(choices)
    if (stored := stats["stores"] - before) < all_entries:
        reason = stats["problem"] or "the others are larger than TORCH_OCL_CACHE_SIZE_MB allows"
        raise ToolError(f"the cache {stats['path']} took {stored} of {all_entries} entries of {path}: {reason}")
    return Counts(len(kernels), len(choices))


def _check(found: dict[str, object], here: Header, path: Path) -> None:
    """ToolError that names the first difference between the headers."""
    for name, own in asdict(here).items():
        if found.get(name) != own:
            what = {"prefix": "build options", "units": "number of compute units"}.get(name, name)
            raise ToolError(f"{path} is not for this machine: its {what} is {found.get(name)!r}, here it is {own!r}.")


def _is_choice(name: str, index: int) -> bool:
    """True if a row of the table "tuning" is a choice or a disabled variant of this device."""
    kind, device, *_ = (*name.split("\n"), "", "")
    return kind in ("choice", "disabled") and device == table.device_key(index).text()

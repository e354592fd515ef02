# torch_ocl_compile/cache_file.py: writes what the cache holds for one device to a file, and reads such a file on
# another machine of the same kind.
"""The file is a zip archive. Its first entry, `header.json`, says for which device, driver and version the file is. If
one of these differs, the file is refused as soon as its header was read. The other entries hold the kernels' binaries,
the compiled graphs, the plans of eager ops and the measured choices.

The binaries are native code, and the graphs are pickles. So import only files of people whom you would let run
programs.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from torch_ocl_compile import _C, identity
from torch_ocl_compile.errors import ToolError
from torch_ocl_compile.tuning import table

FORMAT = 2
HEADER, CHOICES = "header.json", "choices.json"
CODE_TABLES = ("graphs", "eager")  # their entries hold for one version of the sources, the extension and torch only
TABLES = ("kernels", *CODE_TABLES)  # tables of the cache; each is a folder of the archive

Entries = dict[str, dict[str, bytes]]  # table -> key -> value


@dataclass(frozen=True)
class Header:
    """What a file is for. The keys of its kernels begin with `prefix`, a hash of device, driver and build options."""

    format: int
    version: str
    device: str
    platform: str
    driver: str
    units: int
    prefix: str


@dataclass(frozen=True)
class Counts:
    """Numbers of entries that were written or read. `problem` says why there are no graphs and plans; "" if they are
    allowed.
    """

    kernels: int
    graphs: int
    eager: int
    choices: int
    problem: str = ""

    def __str__(self) -> str:
        return (
            f"{self.kernels} entries of kernels, {self.graphs} compiled graphs, {self.eager} plans of eager ops and "
            f"{self.choices} choices"
        )


def header_of(index: int) -> Header:
    """Returns the header of a file for device `index` of this machine."""
    p = _C.device_properties(index)
    version = sys.modules["torch_ocl_compile"].__version__
    return Header(FORMAT, version, p["name"], p["platform_name"], p["driver"], p["multi_processor_count"],
                  _C.exec.store_prefix(index))  # fmt: skip


def prefix_of(name: str, index: int) -> str:
    """Returns the prefix of the keys of a table that this process can use on a device; "" if it can use none."""
    return identity.entry_prefix(index) if name in CODE_TABLES else _C.exec.store_prefix(index)


def keys_of(name: str, index: int) -> list[str]:
    """Returns the keys that the cache has for a device."""
    prefix = prefix_of(name, index)
    return [key for key in _C.exec.cache_keys(name) if prefix and key.startswith(prefix)]


def read_entries(keys: Mapping[str, list[str]]) -> Entries:
    """Returns the entries of some keys of each table, without entries that are damaged or gone."""
    found: Entries = {}
    for name in TABLES:
        found[name] = {key: value for key in keys.get(name, ()) if (value := _C.exec.cache_find(name, key))}
    return found


def choices_of(index: int) -> dict[str, str]:
    """Returns the rows of the table "tuning" for a device."""
    return {name: value for name, value in _C.exec.tuning_rows() if _is_choice(name, index)}


def pack(index: int, entries: Entries, choices: Mapping[str, str]) -> bytes:
    """Returns the archive as bytes."""
    with io.BytesIO() as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            head = {**asdict(header_of(index)), "code": _code()}
            archive.writestr(HEADER, json.dumps(head, indent=1))
            archive.writestr(CHOICES, json.dumps(choices))
            for name, rows in entries.items():
                for key, value in rows.items():
                    archive.writestr(f"{name}/{key}", value)
        return file.getvalue()


def export_cache(index: int, path: Path) -> Counts:
    """Writes what the cache holds for a device."""
    entries = read_entries({name: keys_of(name, index) for name in TABLES})
    choices = choices_of(index)
    path.write_bytes(pack(index, entries, choices))
    return _counts(entries, choices)


def import_cache(index: int, path: Path) -> Counts:
    """Puts what a file holds into the cache. Raises ToolError for a file of another device, driver or version, or if the cache
    cannot take all."""
    _C.require_device(-1)  # without a device, this gives the better message
    with path.open("rb") as file:
        return unpack(index, file, str(path))


def unpack(index: int | None, file: io.IOBase, name: str) -> Counts:
    """Puts the contents of an open file into the cache, as import_cache does. Messages call the file `name`. If `index` is None, the
    device is the one for which the file was written.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            head = json.loads(archive.read(HEADER))
            index = _device_for(head, name) if index is None else index
            _check(head, header_of(index), name)
            problem = _problem_with_code(head, name)
            wanted = [f"{t}/{prefix_of(t, index)}" for t in TABLES if not (problem and t in CODE_TABLES)]
            choices = {row: value for row, value in json.loads(archive.read(CHOICES)).items() if _is_choice(row, index)}
            entries: Entries = {t: {} for t in TABLES}
            for entry in archive.infolist():
                if entry.filename.startswith(tuple(wanted)):
                    folder, _, key = entry.filename.partition("/")
                    entries[folder][key] = archive.read(entry)
    except ToolError:
        raise
    except Exception as error:  # zipfile raises a dozen kinds for damaged bytes
        raise ToolError(f"{name} is no file of `torch-ocl cache export`, or is damaged: {error}") from error
    _store(entries, choices, name)
    return _counts(entries, choices, problem)


def _store(entries: Entries, choices: Mapping[str, str], name: str) -> None:
    """Stores everything. Raises ToolError if the cache does not take all of it."""
    before = _C.exec.cache_stats()["stores"]
    count = len(choices)
    for folder, rows in entries.items():
        present = set(_C.exec.cache_keys(folder)) if folder in CODE_TABLES else set()
        for key, value in rows.items():
            if key not in present:  # the entry that is there may be for more sizes of the graph
                _C.exec.cache_store(folder, key, value)
                count += 1
    for row, choice in choices.items():
        _C.exec.cache_store("tuning", row, choice)
    table.forget()
    stats = _C.exec.cache_stats()
    if (stored := stats["stores"] - before) < count:
        reason = stats["problem"] or "the others are larger than TORCH_OCL_CACHE_SIZE_MB allows"
        raise ToolError(f"the cache {stats['path']} took {stored} of {count} entries of {name}: {reason}")


def _check(found: Mapping[str, object], here: Header, name: str) -> None:
    """Raises ToolError with the first field of the header that differs from this machine's."""
    for field, own in asdict(here).items():
        if found.get(field) != own:
            what = {"prefix": "build options", "units": "number of compute units"}.get(field, field)
            raise ToolError(f"{name} is not for this machine: its {what} is {found.get(field)!r}, here it is {own!r}.")


def _device_for(head: Mapping[str, object], name: str) -> int:
    """Returns the device that fits the header, else one with the same name. Raises ToolError if there is neither."""
    named = None
    for index in range(_C.device_count()):
        here = header_of(index)
        if all(head.get(field) == own for field, own in asdict(here).items()):
            return index
        if named is None and here.device == head.get("device"):
            named = index
    if named is None:
        raise ToolError(f"{name} is not for this machine: its device is {head.get('device')!r}, which is not here.")
    return named


def _problem_with_code(head: Mapping[str, object], name: str) -> str:
    code = _code()
    if code and head.get("code") == code:
        return ""
    return (
        f"the graphs and plans of {name} are of another build of torch_ocl_compile or another torch, and are left out"
    )


def _code() -> str:
    """Identifies the code that makes graphs and plans here; "" if that is impossible."""
    code = identity.of_code()
    return hashlib.sha256(code.encode()).hexdigest() if code else ""


def _counts(entries: Entries, choices: Mapping[str, str], problem: str = "") -> Counts:
    return Counts(len(entries["kernels"]), len(entries["graphs"]), len(entries["eager"]), len(choices), problem)


def _is_choice(name: str, index: int) -> bool:
    """True if a row of the table "tuning" is a choice or a disabled variant of this device."""
    kind, device, *_ = (*name.split("\n"), "", "")
    return kind in ("choice", "disabled") and device == table.device_key(index).text()

# torch_ocl_compile/tuning/table.py: stores, ships and follows measured choices of kernel variants.
"""The table "tuning" of the cache file has three kinds of rows, each for one device and driver: a "choice" for a
problem, a choice that is "disabled" because it failed with this driver, and a choice that a process is "trying". If
the process of a "trying" row is gone, the variant has killed it, so it is disabled too.

`tuned.json` has choices for devices that were measured beforehand. Choices in the cache take precedence. Rows of
either that cannot be read are ignored, with one warning.
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from torch_ocl_compile import _C, config

log = logging.getLogger(__name__)

SHIPPED = Path(__file__).with_name("tuned.json")
FORMAT = 1  # Version of the rows. Change it when the meaning of a stored choice changes.
_SEPARATOR = "\n"


@dataclass(frozen=True)
class DeviceKey:
    """The device and driver for which a measurement is valid."""

    device: str
    driver: str
    units: int  # A CPU runtime may be restricted to some of the cores.

    def text(self) -> str:
        return f"{FORMAT} | {self.device} | {self.driver} | {self.units} units"


@dataclass
class Table:
    """The tuning results of one device and driver."""

    key: DeviceKey
    choices: dict[str, dict[str, Any]] = field(default_factory=dict)  # Problem -> {"choice", "ms", "model_ms"}.
    disabled: dict[str, str] = field(default_factory=dict)  # Choice -> reason.
    shipped: dict[str, str] = field(default_factory=dict)  # Problem -> choice.

    def followed(self) -> dict[str, str]:
        """Returns the choice for each problem. The device's own choices take precedence over shipped ones."""
        own = {problem: str(row["choice"]) for problem, row in self.choices.items()}
        found = {**self.shipped, **own}
        return {problem: choice for problem, choice in found.items() if choice not in self.disabled}


_tables: dict[int, Table] = {}
_followed: set[int] = set()  # Devices whose table the C++ core has.
_loaded_for: object = None


@cache
def device_key(index: int) -> DeviceKey:
    p = _C.device_properties(index)
    return DeviceKey(p["name"], p["driver"], p["multi_processor_count"])


def table_of(index: int) -> Table:
    """Returns the rows of a device. They are read once per process and cache file."""
    global _loaded_for
    if _loaded_for != config.core_settings():
        _tables.clear()
        _followed.clear()
        _loaded_for = config.core_settings()
    if index not in _tables:
        found = read(device_key(index))
        found.shipped = shipped_choices(found.key, SHIPPED)
        _tables[index] = found
    return _tables[index]


def follow(index: int) -> None:
    """Makes compilations for the device follow its table."""
    if _loaded_for != config.core_settings() or index not in _followed:
        refresh(index)


def refresh(index: int) -> None:
    found = table_of(index)
    _C.exec.set_measured(index, found.followed(), set(found.disabled))
    _followed.add(index)


def forget() -> None:
    """Makes the next compilation read the tables again."""
    _tables.clear()
    _followed.clear()
    device_key.cache_clear()


def read(key: DeviceKey) -> Table:
    """Returns the rows of the cache for `key`."""
    found, bad = Table(key), []
    for name, value in _C.exec.tuning_rows():
        kind, device, subject = (*name.split(_SEPARATOR), "", "")[:3]
        if device != key.text():
            continue
        try:
            row = json.loads(value)
            if kind == "choice":
                found.choices[subject] = {**row, "choice": _checked(row["choice"])}
            elif kind == "disabled":
                found.disabled[_checked(subject)] = str(row["reason"])
            elif kind == "trying":
                if not _alive(int(row["pid"])):
                    disable(found, subject, "the process that tried it did not come back", row.get("problem", ""))
                    _C.exec.cache_erase("tuning", name)
            else:
                raise ValueError(f"a row of kind {kind!r}")
        except (ValueError, KeyError, TypeError) as error:
            bad.append(f"{name!r}: {error}")
    if bad:
        warnings.warn(
            f"{len(bad)} rows of the tuning table in {config.cache_folder()} cannot be read and are ignored, the first {bad[0]}.\n"
            "  do: `torch-ocl tune --forget` clears the table",
            stacklevel=2,
        )
    return found


def save(found: Table, problem: str, row: dict[str, Any]) -> None:
    found.choices[problem] = row
    _C.exec.cache_store("tuning", _SEPARATOR.join(("choice", found.key.text(), problem)), json.dumps(row))


def disable(found: Table, choice: str, reason: str, problem: str) -> None:
    """Disables a choice for the driver from now on, with one warning."""
    if choice in found.disabled:
        return
    found.disabled[choice] = reason
    row = json.dumps({"reason": reason, "problem": problem})
    _C.exec.cache_store("tuning", _SEPARATOR.join(("disabled", found.key.text(), choice)), row)
    warnings.warn(
        f"the kernel variant '{choice}' is disabled for {found.key.device} with driver {found.key.driver}: {reason} "
        f"(tried for {problem}). Others are used in its place.",
        stacklevel=2,
    )


class TrialMark:
    """Marks a variant in the cache while it runs: `with TrialMark(table, choice, problem):`."""

    def __init__(self, found: Table, choice: str, problem: str) -> None:
        self.key = _SEPARATOR.join(("trying", found.key.text(), choice))
        self.value = json.dumps({"pid": os.getpid(), "problem": problem})

    def __enter__(self) -> TrialMark:
        _C.exec.cache_store("tuning", self.key, self.value)
        return self

    def __exit__(self, *exc: object) -> None:
        _C.exec.cache_erase("tuning", self.key)


def clear() -> int:
    """Erases the rows of all devices. Returns their number."""
    names = [name for name, _ in _C.exec.tuning_rows()]
    for name in names:
        _C.exec.cache_erase("tuning", name)
    forget()
    return len(names)


def shipped_choices(key: DeviceKey, path: Path) -> dict[str, str]:
    """Returns the file's choices for a device: the choices for any driver, overridden by the choices for this driver."""
    try:
        content = json.loads(path.read_text())
        if content["format"] != FORMAT:
            raise ValueError(f"format {content['format']} is not {FORMAT}")
        entries = content["devices"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        warnings.warn(f"the table {path} cannot be read and is ignored: {error}", stacklevel=2)
        return {}
    found: dict[str, dict[str, str]] = {"": {}, key.driver: {}}
    bad = []
    for entry in entries:
        try:
            driver = entry.get("driver", "")
            if entry["device"] != key.device or driver not in found or entry.get("units", key.units) != key.units:
                continue
            choices = dict(entry["choices"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            bad.append(repr(error))
            continue
        for problem, choice in choices.items():
            try:
                found[driver][problem] = _checked(choice)
            except ValueError as error:
                bad.append(f"{problem!r}: {error}")
    if bad:
        warnings.warn(f"{len(bad)} rows of {path} cannot be read and are ignored, the first {bad[0]}", stacklevel=2)
    return {**found[""], **found[key.driver]}


def export(found: Table, path: Path) -> int:
    """Writes the device's own choices to a file in the shipped format. They replace the file's choices for this device
    and driver.
    """
    content: dict[str, Any] = {"format": FORMAT, "devices": []}
    if path.exists():
        content = json.loads(path.read_text())
    same = (found.key.device, found.key.driver)
    content["devices"] = [e for e in content["devices"] if (e.get("device"), e.get("driver", "")) != same]
    choices = {problem: row["choice"] for problem, row in sorted(found.choices.items()) if _differs(row)}
    entry = {"device": found.key.device, "driver": found.key.driver, "units": found.key.units, "choices": choices}
    content["devices"].append(entry)
    path.write_text(json.dumps(content, indent=1) + "\n")
    return len(choices)


def _differs(row: dict[str, Any]) -> bool:
    return bool(row.get("model_choice") != row["choice"])


def _checked(choice: object) -> str:
    """Checks that a choice is a template's name and knobs: "gemm_item tile=6x4 run=8". ValueError otherwise."""
    if not isinstance(choice, str) or not choice.strip() or not choice.isprintable():
        raise ValueError(f"{choice!r} is no choice")
    name, *knobs = choice.split(" ")
    if not name.isidentifier() or any(knob.count("=") != 1 for knob in knobs):
        raise ValueError(f"{choice!r} is no choice")
    return choice


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

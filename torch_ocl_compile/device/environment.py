# torch_ocl_compile/device/environment.py: environment variables TORCH_OCL_... that are wrong or unknown.
from __future__ import annotations

import difflib
import os
from collections.abc import Iterator

from torch_ocl_compile import config
from torch_ocl_compile.errors import ConfigError

_PREFIX = "TORCH_OCL_"
_OF_TESTS = ("TORCH_OCL_FUZZ_", "TORCH_OCL_TESTS_")
_told: set[str] = set()


def fault() -> str:
    """Returns what is wrong with the value of a variable; "" if all are right. The first use of a device raises it."""
    for row in config.options().values():
        if row.variable in os.environ:
            try:
                config.get(row.name)
            except ConfigError as error:
                return str(error)
    return ""


def value(name: str) -> config.Value:
    """Returns the value of an option; its default if the environment's is wrong, see `fault`."""
    try:
        return config.get(name)
    except ConfigError:
        return config.options()[name].default


def unknown() -> Iterator[str]:
    """Returns a sentence for each variable that no option has. Further calls leave it out."""
    variables = [row.variable for row in config.options().values()]
    for name in sorted(os.environ):
        if name.startswith(_PREFIX) and not name.startswith(_OF_TESTS) and name not in variables and name not in _told:
            _told.add(name)
            near = difflib.get_close_matches(name, variables, 1)
            yield f"environment variable {name} has no effect" + (
                f"; did you mean {near[0]}?" if near else "; see docs/options.md"
            )

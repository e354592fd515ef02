# torch_ocl_compile/eager/stored.py: says what stored plans of eager ops depend on besides their calls.
"""csrc/torch/eager.cpp calls `context` at each call for which it has no plan. If the cache has the plan, no other
Python code runs, so this file does not import the compiler.
"""

from __future__ import annotations

from typing import Any

from torch_ocl_compile import config, identity
from torch_ocl_compile.tuning import table


def context(device: int) -> tuple[str, str, dict[str, Any]]:
    """Returns the identity of plans that are stored now ("": none are stored), their keys' prefix, and options for making plans."""
    config.configure_core()
    table.follow(device)
    options = dict(config.compile_options(None))
    if options["check"]:
        from torch_ocl_compile.compile import check

        check.install()
    # With a dump, every plan is made anew, because the dump shows how it is made.
    if config.get("dump") or not config.get("cache_size_mb"):
        return "", "", options
    code = identity.of_code()
    if not code:
        return "", "", options
    found = "\n".join((code, identity.of_device(device), repr(options)))
    return found, identity.entry_prefix(device), options

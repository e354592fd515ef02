# torch_ocl_compile/eager/stored.py: what plans of eager ops in the cache depend on beside their calls.
"""csrc/torch/eager.cpp asks at each call that it has no plan for. If the cache has one, this is all the Python that runs: nothing
here imports the compiler."""

from __future__ import annotations

from typing import Any

from torch_ocl_compile import config, identity
from torch_ocl_compile.tuning import table


def context(device: int) -> tuple[str, str, dict[str, Any]]:
    """The identity of plans that are stored now ("": none are), what their keys begin with, and the options that plans are made with."""
    config.configure_core()
    table.follow(device)
    options = dict(config.compile_options(None))
    if config.get("dump") or not config.get("cache_size_mb"):  # a dump shows how each plan is made
        return "", "", options
    code = identity.of_code()
    if not code:
        return "", "", options
    found = "\n".join((code, identity.of_device(device), repr(options)))
    return found, identity.entry_prefix(device), options

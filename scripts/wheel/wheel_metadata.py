# scripts/wheel/wheel_metadata.py: a wheel's version and dependencies, which contain the minor version of torch it is
# built with.
"""A provider for scikit-build-core (`[[tool.dynamic-metadata]]` in pyproject.toml). The extension module works with one minor
version of torch, so wheels for several of them differ in the local part of their version: 0.1.0+torch2.13."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[2] / "torch_ocl_compile" / "__init__.py"


def dynamic_metadata(settings: Mapping[str, Any], project: Mapping[str, Any]) -> dict[str, Any]:
    """Returns "version" and "dependencies". `settings["dependencies"]` are the dependencies other than torch.

    If torch is not installed, as in builds of a source distribution, the version does not contain that of torch.
    """
    found = re.search(r'^__version__ = "(.+)"$', PACKAGE.read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise RuntimeError(f"{PACKAGE} has no line __version__ = ...")
    own = found[1]
    try:
        major, minor = version("torch").split(".")[:2]
    except PackageNotFoundError:
        return {"version": own, "dependencies": [settings["torch"], *settings["dependencies"]]}
    torch = f"torch>={major}.{minor},<{major}.{int(minor) + 1}"
    return {"version": f"{own}+torch{major}.{minor}", "dependencies": [torch, *settings["dependencies"]]}

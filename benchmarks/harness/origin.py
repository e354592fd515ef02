# benchmarks/harness/origin.py: what a result file says about the run that made it, and what is missing in a file.
"""A number is worth nothing without its date, commit, device, driver and settings. benchmarks/page.py and
tests/conformance refuse files that lack them."""

from __future__ import annotations

import contextlib
import os
import platform
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from torch_ocl_compile import _C, config

# Fields of a result file. None of them may be empty.
FIELDS = ("when", "commit", "torch", "host", "command")
HIDDEN = ("commit", "cache_dir", "progress")  # Options that change no measurement.
# Lists of rows in a result file. Each row has the settings of its side.
SECTIONS = ("networks", "operations", "memory", "startup", "layers", "overlap", "collectives", "copies", "parallel", "fft",
            "flex_attention", "sparse", "order", "eager", "decode", "generate")  # fmt: skip
# Settings of a side. Those of the first line may not be empty; None in the others means that the side has no such thing.
NEEDED = ("device", "driver", "torch", "dtype", "tf32", "threads", "environment")
SETTINGS = (*NEEDED, "opencl", "cuda", "cudnn", "backend", "freezing", "cudnn_benchmark")


def origin() -> dict[str, Any]:
    """Returns the fields of a result file. Call it before the measurement, because it reads the commit."""
    return {"when": time.strftime("%Y-%m-%d %H:%M"), "commit": commit(), "torch": torch.__version__,
            "host": platform.platform(), "command": command()}  # fmt: skip


def commit() -> str | None:
    """Returns the commit of the running code, with "-dirty" if files were changed. None if that is unknown.

    The option `commit` comes first. Then git is asked, and then the file that the build of a wheel writes."""
    given = str(config.get("commit"))
    if given:
        return given
    folder = Path(__file__).parent
    # In a folder that git ignores, such as a virtual environment, the commit would be that of the folder around it.
    if (folder.parents[1] / ".git").exists():
        ask = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--exclude=*"]
        with contextlib.suppress(FileNotFoundError):  # git is not installed.
            done = subprocess.run(ask, capture_output=True, text=True, check=False)
            if done.stdout.strip():
                return done.stdout.strip()
    written = Path(str(_C.__file__)).with_name("commit.txt")
    return (written.read_text(encoding="utf-8").strip() or None) if written.exists() else None


def command() -> str:
    """Returns the command line of this process. Absolute paths are cut to their last part."""
    program = Path(sys.argv[0])
    words = [f"{name}={os.environ[name]}" for name in shown_variables()]
    if "RANK" in os.environ:
        words += [
            "torchrun",
            "--nproc-per-node",
            os.environ.get("LOCAL_WORLD_SIZE", "1"),
            "-m",
            f"benchmarks.{program.stem}",
        ]
    else:
        words += ["python", "-m", "benchmarks" if program.stem == "__main__" else f"benchmarks.{program.stem}"]
    return shlex.join([*words, *(Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])])


def shown_variables() -> list[str]:
    """Returns the names of the options that the environment sets and that can change a measurement."""
    return sorted(o.variable for o in config.options().values() if o.variable in os.environ and o.name not in HIDDEN)


def missing(content: dict[str, Any]) -> list[str]:
    """Returns the names of the fields that a result file lacks."""
    found = [name for name in FIELDS if not content.get(name)]
    rows = [(section, row) for section in SECTIONS for row in content.get(section) or []]
    for section, row in rows:
        found += [f"{section}: settings.{name} of the side {row.get('side')}" for name in missing_settings(row)]
    return list(dict.fromkeys(found if rows else [*found, "rows"]))


def missing_settings(row: dict[str, Any]) -> list[str]:
    settings = row.get("settings") or {}
    empty = [name for name in NEEDED if settings.get(name) is None]
    if str(row.get("side")).startswith("ocl") and not settings.get("opencl"):
        empty.append("opencl")
    return [*empty, *(name for name in SETTINGS if name not in settings and name not in empty)]

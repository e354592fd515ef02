# tests/no_device/tree/test_device_lists.py: there is an answer to each place in torch that treats some accelerators specially.
from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import torch

from tests.no_device.tree.device_answers import ANSWERS
from tests.no_device.tree.device_lists import places


def answered(file: str, function: str) -> bool:
    rows = (row.partition(":") for row in ANSWERS)
    return any(
        fnmatchcase(file, files) and any(fnmatchcase(function, name) for name in names.split() or [""])
        for files, _, names in rows
    )


def test_each_list_of_devices_has_an_answer() -> None:
    """A new version of torch brings new places. Read each one: does ocl belong into its list?"""
    new = sorted(
        f"{file}: {function}" for file, function in places(Path(torch.__file__).parent) if not answered(file, function)
    )
    assert not new, (
        f"torch {torch.__version__} treats some devices specially in {len(new)} new places:\n  "
        + "\n  ".join(new)
        + "\n  do: decide how ocl has to be treated there, mend it, and add a row to tests/no_device/tree/device_answers.py"
    )


def test_a_new_list_is_found(tmp_path: Path) -> None:
    (tmp_path / "optim").mkdir()
    (tmp_path / "optim/new.py").write_text(
        "def listed(p):\n    return p.device.type in ('cuda', 'xpu')\n"
        "class C:\n    def asks(self, p):\n        return p.is_cuda or p.is_xpu\n"
        "def ours(p):\n    return p.device.type in ['cuda', torch._C._get_privateuse1_backend_name()]\n"
        "def other(p):\n    return p.kind in ('row', 'column')\n"
    )
    assert places(tmp_path) == {("optim/new.py", "listed"), ("optim/new.py", "C.asks")}

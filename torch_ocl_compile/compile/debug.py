# torch_ocl_compile/compile/debug.py: records and dumps compiled graphs.
"""Each file logs to `logging.getLogger(__name__)`. TORCH_LOGS="+torch_ocl_compile" shows all logs,
"+torch_ocl_compile.lowering" one part. TORCH_OCL_DUMP=dir writes every graph as text."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from torch_ocl_compile import _C, config

KEPT = 64  # Number of records of compiled graphs that are kept.


@dataclass
class Record:
    """A compiled graph."""

    label: str
    fx_nodes: int
    kernels: int
    calls: int
    text: Callable[[], str]  # Prints the ir.Graph.
    plan: Any

    def size(self) -> str:
        return f"{self.fx_nodes} aten nodes, {self.kernels} launches, {self.calls} eager calls"


@dataclass(frozen=True)
class Cut:
    """A node at which a graph was cut."""

    op: str
    reason: str
    source: str  # The line of the user's code, such as "model.py:61"; "" if unknown.
    eager: bool  # Whether PyTorch runs the node. False: its graphs are compiled.


@dataclass(frozen=True)
class Choice:
    """How an op of Dynamo's graph is computed, if there are several ways."""

    op: str
    way: str
    source: str  # As in Cut.


class Collection(list[Record]):
    """Records of compiled graphs, where graphs were cut: (label, cut), and choices for ops."""

    def __init__(self) -> None:
        super().__init__()
        self.cuts: list[tuple[str, Cut]] = []
        self.choices: list[Choice] = []


_records: deque[Record] = deque(maxlen=KEPT)
_collections: list[Collection] = []  # The lists of all open collecting() blocks.
_counts = {"compiled": 0, "loaded": 0}


def next_label(kind: str, *, loaded: bool = False) -> str:
    """Returns the name of a graph in dumps and plans: forward_0, backward_1, ... `loaded`: the graph comes from the
    cache.
    """
    number = sum(_counts.values())
    _counts["loaded" if loaded else "compiled"] += 1
    return f"{kind}_{number}"


def compiled_graphs() -> int:
    """Returns the number of graphs that were compiled in this process."""
    return _counts["compiled"]


def loaded_graphs() -> int:
    """Returns the number of graphs that were loaded from the cache."""
    return _counts["loaded"]


def remember(label: str, fx_nodes: int, lowered: Any, plan: Any) -> Record:
    graph = lowered.graph
    record = Record(label, fx_nodes, plan.launch_count, len(lowered.calls), graph.str, plan)
    _records.append(record)
    for collection in _collections:
        collection.append(record)
    return record


def remember_cut(cut: Cut, label: str) -> None:
    for collection in _collections:
        collection.cuts.append((label, cut))


def remember_choice(choice: Choice) -> None:
    for collection in _collections:
        collection.choices.append(choice)


def forget() -> None:
    _records.clear()


def records() -> list[Record]:
    """Returns the records of the latest compiled graphs, oldest first."""
    return list(_records)


@contextmanager
def collecting() -> Iterator[Collection]:
    """Yields a list that gets every graph that is compiled in the block, oldest first."""
    found = Collection()
    _collections.append(found)
    try:
        yield found
    finally:
        _collections[:] = [other for other in _collections if other is not found]


def dump(label: str, name: str, text: Callable[[], str]) -> None:
    """Writes `text` to <dump>/<label>.<name> if a dump folder is set."""
    folder = str(config.get("dump"))
    if not folder:
        return
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, f"{label}.{name}"), "w", encoding="utf-8", opener=open_for_user_alone) as file:
        file.write(text())


def open_for_user_alone(path: str, flags: int) -> int:
    """Opens a file for open(): a new file is for this user alone, and no symbolic link is followed."""
    return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600)


def save_failure(name: str, texts: Mapping[str, str], objects: Mapping[str, Any]) -> Path:
    """Makes the folder <cache>/failed/<name> for this user alone, writes `texts` and `objects` (file name -> contents)
    into it, and returns it. torch.save writes `objects`.
    """
    folder = config.cache_folder() / "failed" / name.replace("/", "_").replace(":", "_")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file_name, text in texts.items():
        with open(folder / file_name, "w", encoding="utf-8", opener=open_for_user_alone) as file:
            file.write(text)
    for file_name, value in objects.items():
        with open(folder / file_name, "wb", opener=open_for_user_alone) as binary, unset_fake_temporarily():
            torch.save(value, binary)
    return folder


def fallback_counts() -> dict[str, int]:
    """Returns "op: reason" -> number of nodes that ran eagerly."""
    return {f"{r.op}: {r.reason}": n for r, n in _C.refusals() if r.place == _C.Refused.Place.GRAPH}


def fallbacks_since(before: dict[str, int]) -> dict[str, int]:
    """Returns the difference between fallback_counts() now and `before`."""
    after = fallback_counts()
    return {name: count - before.get(name, 0) for name, count in after.items() if count > before.get(name, 0)}

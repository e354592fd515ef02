# torch_ocl_compile/package/writer.py: writes the SQLite file of a package. csrc/cache/package_file.h describes the tables.
from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from torch_ocl_compile import _C
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.package.export import MethodRows, ir_name

PART_BYTES = 16 * 2**20  # Size of the parts in which the contents of tensors are stored.
# SQLite reads long values page by page, so weights of this size get its largest pages: reading takes half of the time.
LARGE_BYTES, LARGE_PAGES = 16 * 2**20, 65536

_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE storages(id INTEGER PRIMARY KEY, bytes INTEGER NOT NULL);
CREATE TABLE parts(storage INTEGER, part INTEGER, data BLOB NOT NULL, checksum INTEGER NOT NULL, PRIMARY KEY(storage, part));
CREATE TABLE tensors(id INTEGER PRIMARY KEY, name TEXT, storage INTEGER, first INTEGER, dtype TEXT, sizes TEXT, strides TEXT,
                     written INTEGER);
CREATE TABLE methods(id INTEGER PRIMARY KEY, name TEXT UNIQUE, structure TEXT, graph TEXT, checksum INTEGER);
CREATE TABLE arguments(method INTEGER, position INTEGER, name TEXT, kind TEXT, dtype TEXT, sizes TEXT,
                       PRIMARY KEY(method, position)) WITHOUT ROWID;
CREATE TABLE symbols(method INTEGER, position INTEGER, argument INTEGER, dim INTEGER,
                     PRIMARY KEY(method, position)) WITHOUT ROWID;
CREATE TABLE conditions(method INTEGER, position INTEGER, expression TEXT, message TEXT,
                        PRIMARY KEY(method, position)) WITHOUT ROWID;
CREATE TABLE inputs(method INTEGER, position INTEGER, kind TEXT, number INTEGER, PRIMARY KEY(method, position)) WITHOUT ROWID;
CREATE TABLE results(method INTEGER, position INTEGER, name TEXT, kind TEXT, value TEXT,
                     PRIMARY KEY(method, position)) WITHOUT ROWID;
CREATE TABLE kernels(key TEXT PRIMARY KEY, binary BLOB NOT NULL, checksum INTEGER NOT NULL);
"""
_METHOD_TABLES = ("arguments", "symbols", "conditions", "inputs", "results")


@dataclass
class _TensorRow:
    name: str
    storage: int
    first: int
    dtype: str
    sizes: str
    strides: str
    written: int


class Weights:
    """The tensors of the methods. Tensors that share memory share a storage, and a tensor of several methods is one row."""

    def __init__(self) -> None:
        self.rows: list[_TensorRow] = []
        self.storages: list[torch.Tensor] = []  # As bytes.
        self._storage_numbers: dict[int, int] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._written: set[int] = set()
        self._held: list[torch.Tensor] = []  # Keeps storages alive, so that their addresses stay theirs.

    def write(self, tensor: torch.Tensor) -> None:
        self._held.append(tensor)
        self._written.add(tensor.untyped_storage()._cdata)

    def is_written(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self._written

    def number(self, tensor: torch.Tensor, name: str) -> int:
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            raise UnsupportedError(f"{name} is a {type(tensor).__name__}, which a package cannot store")
        tensor = tensor.detach()
        storage = tensor.untyped_storage()
        key = (storage._cdata, tensor.storage_offset(), tensor.dtype, tensor.shape, tensor.stride())
        if key not in self._numbers:
            self._held.append(tensor)
            self._numbers[key] = len(self.rows)
            dtype = ir_name(tensor.dtype)
            sizes, strides = (", ".join(map(str, x)) for x in (tensor.shape, tensor.stride()))
            first, written = int(tensor.storage_offset()), int(self.is_written(tensor))
            self.rows.append(_TensorRow(name, self._storage(storage), first, dtype, sizes, strides, written))
        return self._numbers[key]

    def _storage(self, storage: torch.UntypedStorage) -> int:
        if storage._cdata not in self._storage_numbers:
            self._storage_numbers[storage._cdata] = len(self.storages)
            whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
            self.storages.append(whole)
        return self._storage_numbers[storage._cdata]


def write(path: Path, methods: Sequence[MethodRows], weights: Weights) -> None:
    """Writes a package. An existing file is replaced."""
    path.unlink(missing_ok=True)
    large = sum(storage.numel() for storage in weights.storages) >= LARGE_BYTES
    with closing(sqlite3.connect(path)) as db:
        if large:
            db.execute(f"PRAGMA page_size={LARGE_PAGES}")
        db.executescript(
            f"PRAGMA application_id={_C.exec.PACKAGE_ID}; PRAGMA user_version={_C.exec.PACKAGE_VERSION};"
            f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; {_SCHEMA}"
        )
        producer = f"torch_ocl_compile {version('torch-ocl-compile')}, torch {torch.__version__}"
        _insert(db, "meta", [("producer", producer)])
        for number, row in enumerate(weights.rows):
            _insert(db, "tensors", [(number, *asdict(row).values())])
        for number, storage in enumerate(weights.storages):
            _insert(db, "storages", [(number, storage.numel())])
            _insert(db, "parts", ((number, i, data, _checksum(data)) for i, data in enumerate(_parts(storage))))
        for number, method in enumerate(methods):
            text = method.graph.encode()
            _insert(db, "methods", [(number, method.name, method.structure, method.graph, _checksum(text))])
            for table in _METHOD_TABLES:
                _insert(db, table, [(number, i, *row) for i, row in enumerate(getattr(method, table))])
        db.commit()


def add_kernels(path: Path, kernels: Iterator[tuple[str, bytes]]) -> None:
    """Adds native code to a package: (key, binary) of each kernel."""
    with closing(sqlite3.connect(path)) as db:
        _insert(db, "kernels", ((key, binary, _checksum(binary)) for key, binary in kernels))
        db.commit()


def _insert(db: sqlite3.Connection, table: str, rows: Any) -> None:
    rows = iter(rows)
    for row in rows:
        places = ", ".join("?" * len(row))
        db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({places})", row)


def _parts(storage: torch.Tensor) -> Iterator[bytes]:
    for part in storage.split(PART_BYTES):
        yield part.cpu().numpy().tobytes()


def _checksum(data: bytes) -> int:
    checksum: int = _C.exec.package_checksum(data)
    return checksum

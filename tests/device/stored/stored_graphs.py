# tests/device/stored/stored_graphs.py: helpers for the tests of compiled graphs in the cache.
from __future__ import annotations

import logging
from contextlib import contextmanager

import pytest
import torch

from torch_ocl_compile import config
from torch_ocl_compile.compile import debug


@pytest.fixture(autouse=True)
def own_cache(tmp_path):
    """Gives the test an empty cache."""
    with config.override(cache_dir=str(tmp_path / "cache")):
        config.configure_core()
        torch._dynamo.reset()
        yield
    torch._dynamo.reset()
    config.configure_core()


class Counted:
    """Counts the graphs that are compiled and loaded within the block."""

    def __enter__(self):
        self.before = debug.compiled_graphs(), debug.loaded_graphs()
        return self

    def __exit__(self, *exc):
        self.compiled = debug.compiled_graphs() - self.before[0]
        self.loaded = debug.loaded_graphs() - self.before[1]


def cold_and_warm(run):
    """Returns the results of `run(compile)` without a cache entry and with one. The second run must load every graph."""

    def compile(function, **settings):
        return torch.compile(function, backend="ocl", **settings)

    with Counted() as cold:
        first = run(compile)
    torch._dynamo.reset()
    with Counted() as warm:
        second = run(compile)
    assert cold.compiled and not cold.loaded
    assert not warm.compiled and warm.loaded == cold.compiled
    return first, second


def assert_same(first, second):
    """Asserts that the results are equal bit by bit: the same kernels ran."""
    assert len(first) == len(second)
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)


@contextmanager
def messages(level=logging.WARNING):
    """Collects the project's log messages within the block, at this level or above."""
    found: list[str] = []
    handler = logging.Handler(level)
    handler.emit = lambda record: found.append(record.getMessage())
    logger = logging.getLogger("torch_ocl_compile")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def one_graph(device, tolerance=1e-4, **options):
    """Compiles a small function and checks its result. Returns how many graphs were compiled and loaded."""
    torch._dynamo.reset()
    with Counted() as counted:
        y = torch.compile(lambda x: (x.exp() @ x).sum(1), backend="ocl", options=options)(SQUARE.to(device)).cpu()
    torch.testing.assert_close(y, (SQUARE.exp() @ SQUARE).sum(1), rtol=tolerance, atol=tolerance)
    return counted


SQUARE = torch.linspace(0, 1, 64 * 64).reshape(64, 64)

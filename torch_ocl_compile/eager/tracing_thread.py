# torch_ocl_compile/eager/tracing_thread.py: the thread that traces ops called outside of compiled functions.
from __future__ import annotations

import concurrent.futures
import logging
import os

from torch_ocl_compile import _C

NAME = "ocl_eager"

_pool: tuple[int, concurrent.futures.ThreadPoolExecutor] | None = None


def tracing_thread() -> concurrent.futures.ThreadPoolExecutor:
    """Returns a pool with the one thread that does all tracing, so that no mode of the caller (autograd, autocast,
    functorch, fake tensors) affects a trace. A forked child gets a thread of its own.
    """
    global _pool
    if _pool is None or _pool[0] != os.getpid():
        # Fake tensors log a traceback for wrong arguments. The op's own error follows.
        logging.getLogger("torch._subclasses.fake_tensor").addFilter(_is_from_elsewhere)
        pool = concurrent.futures.ThreadPoolExecutor(1, NAME, initializer=_C.never_compile_on_this_thread)
        _pool = (os.getpid(), pool)
    return _pool[1]


def _is_from_elsewhere(record: logging.LogRecord) -> bool:
    """Returns False for records of the tracing thread."""
    return not (record.threadName or "").startswith(NAME)

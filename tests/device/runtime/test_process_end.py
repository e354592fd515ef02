# tests/device/runtime/test_process_end.py: a process can end normally with work enqueued and tensors alive.
"""Daemon threads that still work when the interpreter ends are not tested.

Python before 3.14 ends such a thread by unwinding its stack, which aborts inside of torch, for tensors on the CPU as
well.
"""

from __future__ import annotations

import pytest

from tests.device.own_process import run_python

# Children are forked before a device is used, so that each has its own runtime and shares the imports. Their copies use
# kernels that the runtime has not compiled yet, because some runtimes compile a launched kernel in another thread.
PROGRAM = """
    import os, sys, tempfile
    import torch

    def work():
        x = torch.randn(64, 63).to({device!r})
        kinds = [torch.float16, torch.int32, torch.bfloat16, torch.int64, torch.uint8, torch.int16]
        return [x] + [x.t().to(kind).contiguous() for kind in kinds]

    for i in range({count}):
        child = os.fork()
        if child == 0:
            os.environ["POCL_CACHE_DIR"] = tempfile.mkdtemp()  # nothing of what an earlier child compiled
            if {side}:
                with torch.ocl.stream(torch.Stream({device!r})):
                    kept = work()
            else:
                kept = work()
            if {fails}:
                raise RuntimeError("on purpose")
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        if status != (256 if {fails} else 0):
            print("child", i, "ended with status", status)
            os._exit(1)
    os._exit(0)
"""


@pytest.mark.parametrize(
    "count, side, fails",
    [(4, False, False), (2, True, False), (2, False, True)],
    ids=["at once", "work on a side stream", "after an exception"],
)
def test_end_with_work_enqueued(ocl_device, tmp_path, count, side, fails):
    """The process waits for the runtime's thread; otherwise the destructors of the runtime's library would crash it."""
    program = PROGRAM.format(device=ocl_device, count=count, side=side, fails=fails)
    status, out, err = run_python(program, TORCH_OCL_CACHE_DIR=str(tmp_path), TMPDIR=str(tmp_path))
    assert status == 0, out + err[-3000:]


FORKED = """
    import gc, os, sys, torch
    from torch_ocl_compile import _C
    device = {device!r}
    x = torch.ones(64, 64, device=device)
    compiled = torch.compile(lambda x: (x @ x).cumsum(0), backend="ocl")
    with torch.no_grad():
        expected = compiled(x).cpu()
    side = torch.Stream(device)
    with torch.ocl.stream(side):
        y = x + 1
    child = os.fork()
    if child == 0:
        torch._dynamo.reset()
        del compiled, x, y, side
        gc.collect()
        sys.exit(0)  # the whole way: destructors, functions registered with atexit
    _, status = os.waitpid(child, 0)
    with torch.no_grad():
        assert torch.equal(compiled(x).cpu(), expected)
    print("child", status)
"""


def test_forked_child_that_drops_everything(ocl_device):
    """A forked child has copies of the parent's objects, but no working runtime. Dropping the objects must not
    crash."""
    status, out, err = run_python(FORKED.format(device=ocl_device))
    assert status == 0 and out.split()[-2:] == ["child", "0"], out + err[-3000:]

# tests/device/runtime/test_threads.py: compiled functions run in one thread while other threads trace and compile.
from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.fx import _symbolic_trace
from torch.fx.experimental.proxy_tensor import make_fx


def polynomial(x):
    return x * x + 2 * x


def test_call_while_another_thread_compiles(ocl_device):
    """One thread compiles new functions and new eager ops, the other calls a compiled function."""
    torch._dynamo.reset()
    compiled = torch.compile(polynomial, backend="ocl", dynamic=False)
    x = torch.arange(8.0, device=ocl_device)
    want, ended = polynomial(x.cpu()), threading.Event()
    torch.testing.assert_close(compiled(x).cpu(), want)

    def compile_on():
        try:
            for n in range(6):
                fresh = torch.compile(lambda y, n=n: (y.sin() * n).sum(-1), backend="ocl", dynamic=False)
                y = torch.ones(3, 2 + n, requires_grad=True, device=ocl_device)
                fresh(y).sum().backward()
                torch.testing.assert_close(y.grad.cpu(), n * torch.ones(3, 2 + n).cos())
                torch.atan2(torch.ones(2 + n, 3, device=ocl_device), y.detach().t())
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(compile_on)
        while not ended.is_set():
            torch.testing.assert_close(compiled(x).cpu(), want)
        done.result()


def test_call_while_another_thread_traces(ocl_device):
    """A compiled function can be called while another thread traces with make_fx, which does not hold Dynamo's lock."""
    torch._dynamo.reset()
    compiled = torch.compile(polynomial, backend="ocl", dynamic=False)
    x = torch.arange(8.0, device=ocl_device)
    traced, called, seen = threading.Event(), threading.Event(), []

    def slow(y):
        traced.set()
        called.wait(60)
        seen.append(_symbolic_trace.is_fx_tracing())
        return y + 1

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(make_fx(slow), torch.ones(3))
        try:
            assert traced.wait(60)
            assert not _symbolic_trace.is_fx_tracing() and not _symbolic_trace._is_fx_tracing_flag
            torch.testing.assert_close(compiled(x).cpu(), polynomial(x.cpu()))
        finally:
            called.set()
        done.result()
    assert seen == [True]
    torch.testing.assert_close(compiled(x + 1).cpu(), polynomial(x.cpu() + 1))


def test_a_trace_of_a_compiled_function_is_refused(ocl_device):
    """FX's flag "is tracing" is kept per thread here. In the tracing thread, a compiled function must still be
    refused."""
    torch._dynamo.reset()
    compiled = torch.compile(polynomial, backend="ocl")
    with pytest.raises(RuntimeError, match="using FX to symbolically trace"):
        make_fx(compiled)(torch.ones(3, device=ocl_device))
    torch.testing.assert_close(compiled(torch.ones(3, device=ocl_device)).cpu(), torch.full((3,), 3.0))

# tests/device/runtime/test_enqueue_threads.py: graphs whose launches a thread enqueues compute the same bits.
import gc

import pytest
import torch
from torch import nn

from torch_ocl_compile import config

LAYERS, WIDTH = 12, 32  # So many launches that the thread gets them.


@pytest.fixture
def threads(monkeypatch):
    """Calls of the fixture choose who enqueues: "always" a thread, or "never"."""

    def choose(allowed):
        monkeypatch.setenv("TORCH_OCL_ENQUEUE_THREADS", allowed)
        config.configure_core()

    yield choose
    monkeypatch.undo()
    config.configure_core()


def network():
    torch.manual_seed(3)
    layers = [
        m for _ in range(LAYERS) for m in (nn.Linear(WIDTH, WIDTH), nn.BatchNorm1d(WIDTH), nn.GELU(), nn.Dropout(0.1))
    ]
    return nn.Sequential(*layers)


def train(device, sizes, streams=1):
    """Trains with batches of these sizes, in turn on some streams. Returns the losses and the parameters."""
    torch._dynamo.reset()
    torch.ocl.manual_seed(7)
    model = network().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, fused=True)
    compiled = torch.compile(lambda x: model(x).square().mean(), backend="ocl", options={"fallback": "error"})
    losses, used = [], [torch.ocl.Stream(device) for _ in range(streams)]
    for i, size in enumerate(sizes):
        x = torch.linspace(-1, 1, size * WIDTH).view(size, WIDTH).to(device)
        stream = used[i % streams]
        stream.wait_stream(torch.ocl.current_stream(device))
        with torch.ocl.stream(stream):
            optimizer.zero_grad()
            loss = compiled(x)
            loss.backward()
            optimizer.step()
        torch.ocl.current_stream(device).wait_stream(stream)
        losses.append(loss.detach())
    return [t.cpu() for t in (*losses, *model.state_dict().values())]


@pytest.mark.parametrize("sizes, streams", [([64, 96, 64, 128, 96, 32], 1), ([64] * 9, 3)])
def test_training_has_the_same_bits(ocl_device, threads, sizes, streams):
    threads("never")
    expected = train(ocl_device, sizes, streams)
    threads("always")
    for got, wanted in zip(train(ocl_device, sizes, streams), expected, strict=True):
        torch.testing.assert_close(got, wanted, rtol=0, atol=0)


def test_graphs_may_be_dropped_while_their_launches_wait(ocl_device, threads):
    threads("always")
    x = torch.randn(64, WIDTH, device=ocl_device)
    model = network().to(ocl_device).eval()
    with torch.no_grad():
        expected = model(x).cpu()
        for _ in range(5):
            torch._dynamo.reset()
            y = torch.compile(model, backend="ocl", dynamic=False)(x)
            torch._dynamo.reset()
            gc.collect()
            torch.testing.assert_close(y.cpu(), expected, rtol=1e-4, atol=1e-5)


def test_recordings_see_every_launch_with_its_graph(ocl_device, threads):
    threads("always")
    x = torch.randn(64, WIDTH, device=ocl_device)
    compiled = torch.compile(network().to(ocl_device), backend="ocl", dynamic=False)
    for _ in range(3):
        compiled(x)
    with torch.ocl.record() as launches:
        compiled(x)
        torch.ocl.synchronize(ocl_device)
    assert len(launches) > LAYERS and all(launch.graph for launch in launches), launches

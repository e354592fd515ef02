# tests/offline/networks.py: the kernels of whole networks, in training and inference.
from __future__ import annotations

import sys
from collections.abc import Iterator
from multiprocessing import get_context

import torch

from benchmarks.harness import networks
from tests.offline.rendering import TYPES, Kernel, kernels, trace
from torch_ocl_compile._C import ir

NETWORKS = (
    "resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "alexnet", "vgg11", "densenet121", "squeezenet1_0", "vit_b_16", "gpt",
)  # fmt: skip
IN_HALVES = ("resnet18", "mobilenet_v2", "gpt")  # Also in 16-bit types. The others have hardly any other kernels there.
BATCH = 4


def graphs_of(name: str, type: str) -> list[ir.Graph]:
    """Returns the graphs of a network: forward and backward of training, and inference. Weights and data are zeros."""
    torch.manual_seed(0)
    # Its fast path in inference is one op, which the device does not have.
    torch.backends.mha.set_fastpath_enabled(False)
    model, inputs, _ = networks.make(name, BATCH)
    model = model.to(TYPES[type])
    inputs = inputs.to(TYPES[type]) if inputs.is_floating_point() else inputs
    graphs = trace(model.train(), inputs)
    with torch.no_grad():
        graphs += trace(model.eval(), inputs)
    if len(graphs) < 3:
        raise RuntimeError(f"{name} in {type} gave {len(graphs)} graphs, and not forward, backward and inference")
    return graphs


def render(name: str, type: str) -> list[Kernel]:
    """Returns the kernels of a network."""
    return [kernel for graph in graphs_of(name, type) for kernel in kernels(graph, type, name)]


def _render_case(case: tuple[str, str]) -> list[Kernel]:
    return render(*case)


def render_all(names: list[str], types: list[str], jobs: int) -> Iterator[Kernel]:
    """Yields the kernels of networks, which are traced in `jobs` processes."""
    cases = [(name, type) for name in names for type in types if type == "fp32" or name in IN_HALVES]
    # A fork of a process with threads may hang, so the processes are new. concurrent.futures of Python 3.11 starts none after
    # jobs * max_tasks_per_child tasks that were submitted at once.
    with get_context("spawn").Pool(jobs, maxtasksperchild=4) as pool:
        for case, found in zip(cases, pool.imap(_render_case, cases, chunksize=1), strict=True):
            print(f"{' '.join(case)}: {len(found)} kernels", file=sys.stderr, flush=True)
            yield from found

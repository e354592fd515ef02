# tests/device/networks/whole_models.py: compares a model's results and all its gradients with fp64 on the CPU.
"""Call `check(make, device)`, where make() returns (model, inputs). draws.py compares the results."""

import contextlib
import copy
import importlib
import importlib.util
import os

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from benchmarks.harness import networks
from tests.device.networks.draws import behind_a_jump, check_draws

ULP = 2.0**-23


def import_models(name):
    """Imports timm or transformers, or skips the test.

    Both import torchvision, which fails to import with a CPU-only torch; networks.import_torchvision() avoids this.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed", allow_module_level=True)
    with contextlib.suppress(ImportError):
        networks.import_torchvision()
    return importlib.import_module(name)


def is_real(x):
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def weighted(out):
    """Returns the model's own loss, or a sum of its outputs with different weights. With equal weights, gradients could
    cancel by symmetry."""
    if getattr(out, "loss", None) is not None:
        return out.loss
    total = 0
    for leaf in tree_leaves(out):
        if is_real(leaf):
            weights = torch.arange(leaf.numel(), device=leaf.device, dtype=leaf.dtype).view(leaf.shape)
            total = total + (leaf * torch.cos(weights)).mean()
    return total


def results(model, inputs, compile=lambda f: f):
    """Returns (name -> value of outputs, loss, gradients and buffers; names of the gradients that may jump).

    draws.behind_a_jump() finds the gradients that may jump in autograd's graph.
    """
    inputs = tree_map_only(torch.Tensor, lambda t: t.detach().clone().requires_grad_(t.is_floating_point()), inputs)

    def step(inputs):
        out = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
        return weighted(out), [leaf for leaf in tree_leaves(out) if is_real(leaf)]

    loss, outputs = compile(step)(inputs)
    leaves = {f"gradient of input {i}": x for i, x in enumerate(tree_leaves(inputs)) if is_real(x)}
    leaves |= {f"gradient of {name}": p for name, p in model.named_parameters()}
    again = behind_a_jump(loss, leaves)
    loss.backward()
    named = {"loss": loss}
    named |= {f"output {i}": x for i, x in enumerate(outputs)}
    named |= {name: leaf.grad for name, leaf in leaves.items()}
    named |= {f"buffer {name}": b for name, b in model.named_buffers() if is_real(b)}
    return {name: t.detach().double().cpu() for name, t in named.items() if t is not None}, again


def without_dropout(model):
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "drop_prob"):
            module.drop_prob = 0.0
    return model


def an_ulp_away(x):
    return x.double() * (1 + torch.empty_like(x, dtype=torch.float64).uniform_(-ULP, ULP)) if is_real(x) else x


def check(make, device, train=True, **options):
    def draw():
        model, inputs = make()
        model = without_dropout(model).train(train)
        exact = copy.deepcopy(model).double()
        fp64, _ = results(exact, tree_map_only(torch.Tensor, lambda t: t.double() if is_real(t) else t, inputs))
        ported = copy.deepcopy(model).to(device)
        fp32, again = results(model, inputs)
        torch._dynamo.reset()
        before = dict(torch.ocl.fallback_counts())
        ours, _ = results(
            ported,
            tree_map_only(torch.Tensor, lambda t: t.to(device), inputs),
            lambda f: torch.compile(f, backend="ocl", options={"fallback": "error", **options}),
        )
        assert torch.ocl.fallback_counts() == before, "ran on the CPU"
        assert ours.keys() == fp64.keys(), sorted(ours.keys() ^ fp64.keys())

        def moved():
            with torch.no_grad():
                for parameter in exact.parameters():
                    parameter.mul_(1 + torch.empty_like(parameter).uniform_(-ULP, ULP))
            return results(exact, tree_map_only(torch.Tensor, an_ulp_away, inputs))[0]

        return ours, fp32, fp64, again, moved

    check_draws(draw)

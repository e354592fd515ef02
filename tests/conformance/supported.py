# tests/conformance/supported.py: writes docs/supported.md from the expectations of conformance runs and the tested
# models.
"""`make conformance` fails if expected.csv or on_cpu.csv differ from a run, in either direction. Models are those of the
tests of whole networks."""

from __future__ import annotations

import sys
from collections.abc import Iterable

import torch

from tests.conformance.expected import Failure, OnCpu, failures, on_cpu
from tests.worker_process import ROOT

PAGE = ROOT / "docs" / "supported.md"
FAMILIES = {
    "torch.nn.functional": "nn.functional.",
    "torch.linalg": "linalg.",
    "torch.special": "special.",
    "torch.fft": "fft.",
    "torch.signal": "signal.",
    "torch, Tensor": "",
}
OWN = {"mlp", "lenet"}  # Networks of test_models.py that are from benchmarks/harness, not from torchvision.
FOOT = """
## Results that differ from the CPU's

`aten._embedding_bag` returns the sums and three tensors for its backward pass. These three have the sizes that they have on CUDA:
the bag of each index (always one number for each index), the sizes of the bags (one for each offset) and the indices of the maxima
(empty unless the mode is `max`). On the CPU they are shorter or longer in some modes. `F.embedding_bag` and `nn.EmbeddingBag` do not
return them.
"""
HEAD = """\
# Supported operators and models

<!-- Written by `python -m tests.conformance supported`, from tests/conformance and the tests of whole networks. -->

This page lists the operators of PyTorch's `op_db`, the modules of `module_db` and the networks that the tests compile. An operator
stands in one of three lists, by the samples in fp32 that a run takes, forward and backward: **on the device** (it agrees with PyTorch on
the CPU, and nothing of it runs there), **partly on the CPU** (it agrees, and some of its samples use the CPU), or **not passing**. An
operator that this page does not know may still work, because PyTorch decomposes many operators into simpler ones.

The lists are the expectations that `make conformance` checks a run against, for torch 2.13. [Conformance](conformance.md) has
the counts of the published runs, the reasons, and what runs on the CPU.
"""


def entries(kind: str) -> list[str]:
    """Returns the names of the entries that have cases in fp32."""
    from tests.conformance import cases

    return sorted({c.entry for c in cases.cases(False) if c.kind == kind and c.dtype == torch.float32})


def in_float32(rows: Iterable[Failure | OnCpu]) -> bool:
    return any("float32" in row.dtypes.split() for row in rows)


def state(kind: str, entry: str) -> str:
    if in_float32(failures().get((kind, entry), [])):
        return "not passing"
    return "partly on the CPU" if in_float32(on_cpu().get((kind, entry), [])) else "on the device"


def listed(kind: str, names: list[str]) -> list[str]:
    """Returns one paragraph for each state that an entry has."""
    lines = []
    for which in ("on the device", "partly on the CPU", "not passing"):
        found = [name for name in names if state(kind, name) == which]
        if found:
            lines += [
                f"**{which[0].upper()}{which[1:]}** ({len(found)}): {', '.join(f'`{name}`' for name in found)}.",
                "",
            ]
    return lines


def models() -> list[str]:
    # Test modules import helpers from their own folder, which pytest puts into sys.path.
    sys.path.insert(0, str(ROOT / "tests" / "device"))
    from tests.device.networks import test_models, test_networks, test_timm, test_transformers

    names = {
        "torchvision": {case[0] for case in (*test_models.NETWORKS, *test_models.LARGE)} - OWN,
        "timm": set(test_timm.FAMILIES),
        "transformers": set(test_transformers.MODELS),
        "written in plain PyTorch": set(test_networks.NETWORKS) | OWN,
    }
    lines = ["| from | networks |", "|---|---|"]
    return lines + [
        f"| {where} | {', '.join(f'`{name}`' for name in sorted(found))} |" for where, found in names.items()
    ]


def page() -> str:
    lines = [
        HEAD,
        "## Models",
        "",
        "Outputs, loss and all gradients of these networks are compared with fp64 on the CPU, on every device that the tests find.",
        "timm's and transformers' networks are small versions with random weights. Some run with `make sweep` alone ([tests](testing.md)).",
        "",
        *models(),
        "",
        "## Operators",
        "",
    ]
    left = entries("op")
    for title, prefix in FAMILIES.items():
        chosen = [name for name in left if name.startswith(prefix)]
        left = [name for name in left if name not in chosen]
        lines += [f"### {title}", "", *listed("op", chosen)]
    lines += ["## Modules", "", *listed("module", entries("module")), FOOT.strip()]
    return "\n".join(lines).rstrip() + "\n"


def write() -> None:
    PAGE.write_text(page(), encoding="utf-8")

# tests/device/networks/test_compiled_optimizers.py: each optimizer of torch.optim, compiled: parameter groups, schedules, checkpoints.
"""Values and step counts are compared with an eager optimizer on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

from torch_ocl_compile.device.compiled_optimizers import adam_in_one_call

STEPS = 12
SETTINGS: dict[str, dict[str, Any]] = {
    "Adadelta": {}, "Adafactor": {}, "Adagrad": {}, "Adam": {"amsgrad": True}, "AdamW": {}, "Adamax": {}, "ASGD": {},
    "Muon": {}, "NAdam": {}, "RAdam": {}, "RMSprop": {"momentum": 0.5}, "Rprop": {}, "SGD": {"momentum": 0.9},
}  # fmt: skip
WITHOUT_DECAY = ("Rprop",)
SHAPES, MATRICES = ((4, 3), (5,), (3, 4, 2), (1,)), ((4, 3), (5, 2), (3, 8), (1, 6))  # Muon takes matrices only.
# Muon computes in bfloat16. RAdam's tensors of step counts lose four digits in float32, on any device: rho_t is a
# small difference of large numbers.
TOLERANCES = {"Muon": 5e-2, "RAdam": 1e-3}
BREAKS_GRAPHS = ("Adafactor",)  # It reads its step counts with .item(), so parts of it run on the host.
SCHEDULES: dict[str, Callable[[Any], Any]] = {
    "cosine": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, STEPS),
    "one-cycle": lambda o: torch.optim.lr_scheduler.OneCycleLR(
        o, [0.05, 0.1], total_steps=STEPS + 1, cycle_momentum=bool({"momentum", "betas"} & set(o.defaults))
    ),
}


class Training:
    """Two parameter groups with different weight decay, on a quadratic loss."""

    def __init__(self, name: str, device: str, compiled: bool = False) -> None:
        torch.manual_seed(0)
        shapes = MATRICES if name == "Muon" else SHAPES
        self.params = [torch.randn(shape).to(device).requires_grad_() for shape in shapes]
        groups: list[dict[str, Any]] = [{"params": self.params[:2]}, {"params": self.params[2:]}]
        if name not in WITHOUT_DECAY:
            groups[0]["weight_decay"], groups[1]["weight_decay"] = 0.1, 0.0
        self.optimizer = getattr(torch.optim, name)(groups, lr=0.05, **SETTINGS[name])
        self.compiled = compiled
        self.options = {} if name in BREAKS_GRAPHS else {"fallback": "error"}

    def run(self, steps: int, schedule: Any = None, frozen: int = 0) -> None:
        """Takes steps. The first `frozen` parameters get no gradient."""
        step = self.optimizer.step
        if self.compiled:
            step = torch.compile(step, backend="ocl", options=self.options)
        for _ in range(steps):
            for k, p in enumerate(self.params):
                p.grad = None if k < frozen else p.detach() * (k + 1) - 0.3
            step()
            if schedule is not None:
                schedule.step()

    def values(self) -> tuple[list[torch.Tensor], list[float]]:
        """Returns the parameters, and the step counts that the user sees."""
        state = self.optimizer.state_dict()["state"]
        return [p.detach().cpu() for p in self.params], [float(s["step"]) for s in state.values() if "step" in s]


def agree(got: Training, expected: Training, tolerance: float = 1e-5) -> None:
    (params, steps), (expected_params, expected_steps) = got.values(), expected.values()
    assert steps == expected_steps
    torch.testing.assert_close(params, expected_params, rtol=tolerance, atol=tolerance)


@pytest.fixture(autouse=True)
def fresh() -> None:
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()


@pytest.mark.sampled(first=6, every=24)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", SETTINGS)
def test_groups_with_a_schedule(name: str, schedule: str, ocl_device: str) -> None:
    """No step is lost, a new learning rate makes no new graph, and the user's groups stay as they were."""
    if not hasattr(torch.optim, name):
        pytest.skip(f"this torch has no {name}")
    expected, got = Training(name, "cpu"), Training(name, ocl_device, compiled=True)
    for training in (expected, got):
        training.run(STEPS, SCHEDULES[schedule](training.optimizer))
    agree(got, expected, TOLERANCES.get(name, 2e-5))
    assert name in BREAKS_GRAPHS or torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2
    for group, other in zip(got.optimizer.param_groups, expected.optimizer.param_groups, strict=True):
        assert {k: v for k, v in group.items() if k != "params"} == {k: v for k, v in other.items() if k != "params"}


@pytest.mark.parametrize("name", ["AdamW", "NAdam", "RMSprop", "Adafactor"])
def test_a_checkpoint_goes_on(name: str, ocl_device: str) -> None:
    """The checkpoint continues in a new compiled optimizer, in the one that it comes from, and in eager mode."""
    expected, first = Training(name, "cpu"), Training(name, ocl_device, compiled=True)
    first.run(5)
    saved = copy.deepcopy((first.params, first.optimizer.state_dict()))
    expected.run(10)
    first.run(2)
    eager, again = Training(name, ocl_device), Training(name, ocl_device, compiled=True)
    on_cpu = Training(name, "cpu")
    for training in (first, eager, again, on_cpu):
        with torch.no_grad():
            for p, old in zip(training.params, saved[0], strict=True):
                p.copy_(old)
        training.optimizer.load_state_dict(copy.deepcopy(saved[1]))
        training.run(5)
        agree(training, expected)


@pytest.mark.parametrize("name", ["AdamW", "Adafactor"])
def test_eager_steps_come_first(name: str, ocl_device: str) -> None:
    """The step counts of eager steps are on the CPU."""
    expected, got = Training(name, "cpu"), Training(name, ocl_device)
    got.run(3)
    got.compiled = True
    got.run(4)
    got.compiled = False
    got.run(2)
    expected.run(9)
    agree(got, expected)


@pytest.mark.parametrize("frozen", [1, 2, 3])
def test_parameters_join_later(frozen: int, ocl_device: str) -> None:
    """Parameters that get their first gradient after some steps, in whole groups and in parts of them."""
    expected, got = Training("AdamW", "cpu"), Training("AdamW", ocl_device, compiled=True)
    for training in (expected, got):
        training.run(4, frozen=frozen)
        training.run(4)
    agree(got, expected)


def test_adam_is_one_node_of_each_group(ocl_device: str) -> None:
    """A learning rate that has changed is a symbol, and then Dynamo traces the ops one by one."""
    expected, got, graphs = Training("AdamW", "cpu"), Training("AdamW", ocl_device), list[Any]()

    def backend(gm: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append([node.target for node in gm.graph.nodes if node.op == "call_function"])
        return gm

    got.optimizer.step = torch.compile(got.optimizer.step, backend=backend)  # type: ignore[method-assign]
    for training in (expected, got):
        training.run(3)
        training.optimizer.param_groups[0]["lr"] = 0.01
        training.run(2)
    agree(got, expected)
    assert graphs[0] == [adam_in_one_call] * 2 and len(graphs) == 2
    assert graphs[1].count(adam_in_one_call) == 1 and torch._foreach_addcmul_ in graphs[1]

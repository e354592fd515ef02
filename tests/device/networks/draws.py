# tests/device/networks/draws.py: compares a network's results with fp64, on up to three random draws of weights and inputs.
"""The error of each tensor against fp64 may be at most twice that of PyTorch's own fp32 (docs/architecture.md,
numerics).

If the input of a ReLU is within rounding of 0, or two candidates of a max pool are within rounding of each other, fp32
and fp64 may take different branches. Then the gradients that pass through this op differ. So such a gradient has to be
right in only one of three draws of weights and inputs; a real mistake shows in each draw. All other results have to be
right in every draw.
"""

import re

import torch

DRAWS = 3
# Names of autograd nodes whose gradient is not continuous: it may jump if the input changes a little.
JUMPS = re.compile(
    r"^(Relu|Threshold|Hardtanh|Hardswish|Hardsigmoid|LeakyRelu|Prelu|Elu|Clamp|Abs|Sign|Max|Min|Amax|Amin|Topk|Sort|"
    r"(Adaptive|Fractional)?MaxPool|Round|Floor|Ceil|HuberLoss|SmoothL1Loss)"
)


def behind_a_jump(loss, leaves):
    """Returns the names of the `leaves` (name -> tensor) whose gradient passes through an op of JUMPS."""
    names = {id(leaf): name for name, leaf in leaves.items()}
    found, seen, waiting = set(), set(), [(loss.grad_fn, False)]
    while waiting:
        node, jumps = waiting.pop()
        if node is None or (node, jumps) in seen:
            continue
        seen.add((node, jumps))
        leaf = names.get(id(getattr(node, "variable", None)))
        if leaf is not None and jumps:
            found.add(leaf)
        jumps = jumps or JUMPS.match(node.name()) is not None
        waiting += [(following, jumps) for following, _ in node.next_functions]
    return found


def rmse(got, exact):
    return (got - exact).pow(2).mean().sqrt().item()


def too_far(ours, fp32, fp64, moved=None):
    """Returns {name: message} of the tensors whose RMSE against fp64 is more than twice PyTorch's plus three ulp.

    `moved` are fp64 results for parameters and inputs that were changed by one ulp. The difference that this makes is
    added to PyTorch's RMSE, because no fp32 result can be more precise.
    """
    found = {}
    for name, exact in fp64.items():
        scale = exact.pow(2).mean().sqrt().item()
        # A running mean may be near 0 because its terms cancel. Its scale is that of the terms, times the momentum 0.1.
        if name.endswith("running_mean"):
            scale = max(scale, 0.1 * fp64[name.replace("running_mean", "running_var")].mean().sqrt().item())
        # The loss, a mean of outputs of both signs, may cancel in the same way.
        if name == "loss":
            outputs = [x for other, x in fp64.items() if other.startswith("output")]
            scale = max([scale, *((x.pow(2).mean() / x.numel()).sqrt().item() for x in outputs)])
        mine, theirs = rmse(ours[name], exact), rmse(fp32[name], exact)
        if moved:
            theirs += rmse(moved[name], exact)
        if not mine <= 2 * theirs + 3.6e-7 * scale + 1e-12:
            found[name] = f"{name}: rmse {mine:.2e}, torch fp32 {theirs:.2e}, scale {scale:.2e}"
    return found


def check_draws(draw):
    """Compares up to three draws; AssertionError if a tensor is wrong in each of them.

    `draw()` uses the current random state. It returns our results, PyTorch's fp32 results, fp64 results, the names of
    the tensors that have to be right in one draw only, and optionally a function that returns fp64 results for inputs
    changed by one ulp.
    """
    left = {}
    for seed in range(DRAWS):
        torch.manual_seed(seed)
        ours, fp32, fp64, again, *moved = draw()
        report = too_far(ours, fp32, fp64)
        if moved and report:
            report = too_far(ours, fp32, fp64, moved[0]())
        firm = [line for name, line in report.items() if name not in again]
        assert not firm, "\n".join(firm)
        left = {name: line for name, line in report.items() if not seed or name in left}
        if not left:
            return
    raise AssertionError("wrong in each draw:\n" + "\n".join(left.values()))

# tests/device/draws.py: a network's results against fp64, and which of its gradients may be drawn again.
"""Each tensor's error against fp64 may be at most twice that of PyTorch's own fp32 (docs/architecture.md, numerics). Where a
ReLU's input or two candidates of a max pool lie within rounding of each other, fp32 and fp64 may take other branches, and every
gradient behind that is another one. So a gradient behind such an op has to be right in one of three draws of weights and inputs:
a mistake shows in each. All else has to be right in every draw that is made."""

import re

import torch

DRAWS = 3
# Names of autograd's nodes whose gradient jumps where their inputs change a little.
JUMPS = re.compile(
    r"^(Relu|Threshold|Hardtanh|Hardswish|Hardsigmoid|LeakyRelu|Prelu|Elu|Clamp|Abs|Sign|Max|Min|Amax|Amin|Topk|Sort|"
    r"(Adaptive|Fractional)?MaxPool|Round|Floor|Ceil|HuberLoss|SmoothL1Loss)"
)


def behind_a_jump(loss, leaves):
    """Names of the `leaves` (name -> tensor) with such an op between them and the loss."""
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
    """Names of the tensors whose RMSE is more than twice PyTorch's and three ulp of their scale, with the numbers. `moved`: fp64
    results from parameters and inputs an ulp away; what that changes, no fp32 result knows better."""
    found = {}
    for name, exact in fp64.items():
        scale = exact.pow(2).mean().sqrt().item()
        # Small by cancellation: its scale is that of what a step (momentum 0.1) averages.
        if name.endswith("running_mean"):
            scale = max(scale, 0.1 * fp64[name.replace("running_mean", "running_var")].mean().sqrt().item())
        if name == "loss":  # the same: a mean of the outputs with signs
            outputs = [x for other, x in fp64.items() if other.startswith("output")]
            scale = max([scale, *((x.pow(2).mean() / x.numel()).sqrt().item() for x in outputs)])
        mine, theirs = rmse(ours[name], exact), rmse(fp32[name], exact)
        if moved:
            theirs += rmse(moved[name], exact)
        if not mine <= 2 * theirs + 3.6e-7 * scale + 1e-12:
            found[name] = f"{name}: rmse {mine:.2e}, torch fp32 {theirs:.2e}, scale {scale:.2e}"
    return found


def check_draws(draw):
    """`draw()` -> (ours, PyTorch's fp32, fp64, names of what may be drawn again), for the random numbers at that time, and
    perhaps a function that gives fp64 results an ulp away."""
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

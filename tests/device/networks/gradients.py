# tests/device/networks/gradients.py: a network's outputs and gradients. A process that computes with CUDA imports it, so it does not import
# torch_ocl_compile.
import torch
import torch.nn.functional as F


def loss_of(run, x, y):
    """Returns the loss, and all outputs concatenated."""
    heads = run(x)
    # Networks with auxiliary classifiers return several outputs.
    heads = heads if isinstance(heads, tuple) else (heads,)
    return sum(F.cross_entropy(head, y) for head in heads), torch.cat([head.flatten() for head in heads])


def forward_and_gradients(model, run, x, y):
    x = x.detach().clone().requires_grad_()
    loss, out = loss_of(run, x, y)
    loss.backward()
    named = {"output": out, "loss": loss, "input gradient": x.grad}
    named |= {f"gradient of {name}": p.grad for name, p in model.named_parameters()}
    named |= {f"buffer {name}": b for name, b in model.named_buffers() if b.is_floating_point()}
    return {name: t.detach().cpu().double() for name, t in named.items()}

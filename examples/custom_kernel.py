# examples/custom_kernel.py: an OpenCL kernel of one's own in a model: swish with its gradient, trained on two moons.
"""python examples/custom_kernel.py --device ocl --steps 100"""

import argparse

import torch
from torch import nn

import torch_ocl_compile

SOURCE = """
__kernel void swish(__global const float* x, __global float* y) {
  size_t i = get_global_id(0);
  y[i] = x[i] / (1.0f + exp(-x[i]));
}
__kernel void swish_gradient(__global const float* x, __global const float* grad, __global float* out) {
  size_t i = get_global_id(0);
  float s = 1.0f / (1.0f + exp(-x[i]));
  out[i] = grad[i] * s * (1.0f + x[i] * (1.0f - s));
}
"""
swish = torch_ocl_compile.kernel(
    "example::swish", SOURCE, outputs={"y": lambda x: torch.empty_like(x)}, global_size=lambda x: x.numel()
)
swish_gradient = torch_ocl_compile.kernel(
    "example::swish_gradient",
    SOURCE,
    outputs={"out": lambda x, grad: torch.empty_like(x)},
    global_size=lambda x, grad: x.numel(),
)
swish.reference(lambda x: x * x.sigmoid())


@swish_gradient.reference
def _(x, grad):
    s = x.sigmoid()
    return grad * s * (1 + x * (1 - s))


swish.register_autograd(
    lambda ctx, grad: swish_gradient(ctx.saved_tensors[0], grad.contiguous()),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(2, 32), nn.Linear(32, 2)

    def forward(self, x):
        return self.last(swish(self.first(x)))


def moons(count):
    """Points of two half circles, with noise: [count, 2] and their classes [count]."""
    labels = torch.arange(count) % 2
    angle = torch.rand(count) * torch.pi
    x = torch.stack([angle.cos() + labels, angle.sin() * (1 - 2 * labels) + 0.5 * labels], 1)
    return x + 0.1 * torch.randn(count, 2), labels


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="ocl")
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    torch.manual_seed(0)
    x, labels = (t.to(args.device) for t in moons(256))
    model = Model().to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    run = torch.compile(model, backend="ocl") if args.device != "cpu" else model
    for step in range(args.steps):
        loss = nn.functional.cross_entropy(run(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0 or step == args.steps - 1:
            print(f"step {step + 1}: loss {loss.item():.4f}")


if __name__ == "__main__":
    main()

# tests/libraries/use_science.py: captum, gpytorch, pyro, opacus, tensordict and e3nn.
import torch
from torch import nn

from tests.libraries.harness import STEPS, Side, Tensors, parameters, program, steps_of


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))


@program("captum", "IntegratedGradients, Saliency, DeepLift, LayerActivation")
def attributions(side: Side) -> Tensors:
    from captum.attr import DeepLift, IntegratedGradients, LayerActivation, Saliency

    model, x = layers().to(side.device), torch.randn(4, 8).to(side.device)
    call = side.compiled(model)
    found = [IntegratedGradients(call).attribute(x, target=1, n_steps=8), Saliency(call).attribute(x, target=2)]
    # DeepLift and LayerActivation hook layers, so they take the module.
    return [
        *found,
        DeepLift(model).attribute(x, target=0).detach(),
        LayerActivation(model, model[1]).attribute(x).detach(),
    ]


@program("gpytorch", "ExactGP with an RBF kernel: three steps of the marginal likelihood, posterior")
def exact_gp(side: Side) -> Tensors:
    import gpytorch

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self, x: torch.Tensor, y: torch.Tensor, likelihood: nn.Module) -> None:
            super().__init__(x, y, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x: torch.Tensor) -> object:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    x = torch.linspace(0, 1, 12).to(side.device)
    y = torch.sin(6 * x)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Model(x, y, likelihood).to(side.device)
    model.covar_module.forward = side.compiled(model.covar_module.forward)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    target, losses = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = -target(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    model.eval()
    with torch.no_grad():
        found = model(torch.linspace(0, 1, 5).to(side.device))
        return [found.mean, found.variance, *losses, *parameters(model)]


@program("pyro-ppl", "SVI with an AutoDelta guide, a regression", wrote="pyro.plate(..., device=)")
def svi(side: Side) -> Tensors:
    import pyro
    import pyro.distributions as dist

    pyro.clear_param_store()
    x = torch.randn(16, 3).to(side.device)
    y = x @ torch.tensor([1.0, -2.0, 0.5]).to(side.device)
    linear = side.compiled(lambda x, w: x @ w)

    def model(x: torch.Tensor, y: torch.Tensor) -> None:
        zeros = torch.zeros(3, device=x.device)
        w = pyro.sample("w", dist.Normal(zeros, 1 + zeros).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(linear(x, w), 0.1), obs=y)

    guide = pyro.infer.autoguide.AutoDelta(model, init_loc_fn=pyro.infer.autoguide.init_to_mean)
    made = pyro.infer.SVI(model, guide, pyro.optim.SGD({"lr": 1e-4}), pyro.infer.Trace_ELBO())
    losses = [torch.tensor(made.step(x, y)) for _ in range(STEPS)]
    return [*losses, *[p.detach() for p in guide.parameters()]]


@program("opacus", "per-sample gradients of GradSampleModule and DPOptimizer without noise")
def private_steps(side: Side) -> Tensors:
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.GroupNorm(2, 144), nn.Linear(144, 3))
    model, x = GradSampleModule(model.to(side.device)), torch.randn(4, 1, 8, 8).to(side.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    private = DPOptimizer(optimizer, noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=4)
    criterion, losses = side.compiled(nn.functional.cross_entropy), []
    for _ in range(STEPS):
        private.zero_grad()
        loss = criterion(model(x), torch.arange(4, device=side.device).remainder(3))
        loss.backward()
        private.step()
        losses.append(loss.detach())
    return [*losses, *parameters(model)]


@program("tensordict", "TensorDictModule, and a TensorDict that is indexed, stacked and moved")
def tensordicts(side: Side) -> Tensors:
    from tensordict import TensorDict
    from tensordict.nn import TensorDictModule, TensorDictSequential

    first, last = nn.Linear(8, 16).to(side.device), nn.Linear(16, 3).to(side.device)
    parts = [TensorDictModule(first, ["x"], ["hidden"]), TensorDictModule(last, ["hidden"], ["y"])]
    call = side.compiled(TensorDictSequential(*parts))
    data = TensorDict({"x": torch.randn(6, 8), "inner": {"z": torch.arange(6)}}, batch_size=[6]).to(side.device)
    losses = []
    optimizer = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = call(data.clone())["y"].square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    stacked = torch.stack([data[:2], data[4:]]).reshape(-1)
    return [*losses, stacked["x"], stacked["inner", "z"], *parameters(first), *parameters(last)]


@program("e3nn", "FullyConnectedTensorProduct with spherical harmonics")
def tensor_product(side: Side) -> Tensors:
    from e3nn import o3

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.product = o3.FullyConnectedTensorProduct("4x0e + 2x1o", "1x0e + 1x1o + 1x2e", "3x0e + 2x1o")

        def forward(self, x: torch.Tensor, place: torch.Tensor) -> torch.Tensor:
            harmonics = o3.spherical_harmonics("1x0e + 1x1o + 1x2e", place, normalize=True)
            return self.product(x, harmonics)

    return steps_of(Layer(), [torch.randn(5, 10), torch.randn(5, 3)], side)

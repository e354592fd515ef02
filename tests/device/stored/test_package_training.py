# tests/device/stored/test_package_training.py: a packaged step of training changes the weights as PyTorch's optimizers do.
import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ocl_run
from torch_ocl_compile import package

OPTIMIZERS = {
    "sgd": (package.sgd(0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "momentum": (package.sgd(0.1, momentum=0.9), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)),
    "adam": (package.adam(0.01), lambda p: torch.optim.Adam(p, 0.01)),
}


def loss(model, x, y):
    return F.cross_entropy(model(x), y)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training(ocl_device, tmp_path, name):
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 10)
    ).train()
    x, y = torch.randn(8, 1, 8, 8), torch.randint(0, 10, (8,))
    expected = copy.deepcopy(net)
    rule, make = OPTIMIZERS[name]
    step = package.TrainingStep(net, loss, (x, y), rule)
    path = tmp_path / "train.ocl"
    package.save(path, {"train": package.Method(step, (x, y)), "predict": package.Method(net.eval(), (x,))})
    model = ocl_run.load(path, device=torch.device(ocl_device).index or 0)
    optimizer = make(expected.parameters())
    for _ in range(5):
        optimizer.zero_grad()
        value = loss(expected, x, y)
        value.backward()
        optimizer.step()
        torch.testing.assert_close(model.train(x, y), value.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model.predict(x), expected.eval()(x).detach(), rtol=1e-3, atol=1e-4)

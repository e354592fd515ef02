# tests/device/networks/test_models.py: whole networks, forward and all gradients, against fp64 on the CPU, and their launches.
"""draws.py compares the results."""

import copy
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from benchmarks.harness import networks
from tests.device.networks.draws import behind_a_jump, check_draws
from tests.device.networks.gradients import forward_and_gradients, loss_of

pytestmark = pytest.mark.sampled(keep="lenet-train")
ROOT = Path(__file__).resolve().parents[3]

# (name, batch, image size). Images are small, so that a CPU runtime needs seconds; the benchmark uses 224 x 224.
NETWORKS = [("mlp", 16, 0), ("lenet", 4, 28), ("resnet18", 2, 64)]
# These networks take up to minutes each on a CPU runtime, so only --sweep runs them.
LARGE = [
    ("mobilenet_v2", 2, 64),
    *(("alexnet", 2, 96), ("vgg16", 2, 48), ("squeezenet1_0", 2, 64)),
    *(("resnet50", 2, 64), ("convnext_small", 2, 64), ("googlenet", 2, 64), ("densenet161", 2, 64)),
    *(
        ("inception_v3", 2, 96),
        ("shufflenet_v2_x1_0", 2, 64),
        ("mobilenet_v3_large", 2, 64),
        ("mobilenet_v3_small", 2, 64),
    ),
    *(("resnext50_32x4d", 2, 64), ("wide_resnet50_2", 2, 64), ("mnasnet1_0", 2, 64), ("efficientnet_b0", 2, 64)),
    *(("efficientnet_b4", 2, 64), ("regnet_y_400mf", 2, 64), ("vit_b_16", 2, 64), ("swin_t", 2, 64)),
]


def without_dropout(model):
    """Sets p = 0: dropout draws other numbers on other devices. Other tests compare the masks."""
    for module in model.modules():
        if type(module).__name__ in ("Dropout", "StochasticDepth"):
            module.p = 0.0
    return model


def what_may_jump(model, x, y):
    """Returns the names, as in forward_and_gradients, of gradients behind a ReLU or a max pool."""
    x = x.detach().clone().requires_grad_()
    model = copy.deepcopy(model)
    leaves = {"input gradient": x} | {f"gradient of {name}": p for name, p in model.named_parameters()}
    return behind_a_jump(loss_of(model, x, y)[0], leaves)


def check_network(name, batch, size, train, ocl_device, tmp_path, **options):
    def draw():
        model, x, classes = networks.make(name, batch, size)
        model = without_dropout(model).train(train)
        y = torch.randint(classes, (batch,))
        exact = copy.deepcopy(model).double()
        fp64 = forward_and_gradients(exact, exact, x.double(), y)
        fp32 = torch_fp32(model, x, y, ocl_device, tmp_path)
        ours = compiled_results(model, x, y, ocl_device, **options)
        return ours, fp32, fp64, what_may_jump(model, x, y)

    check_draws(draw)


SWEEP = pytest.mark.needs("sweep")
# A plain run evaluates these; training uses the same kernels, except for those of batch norm, which
# test_resnet18_launches runs.
EVALUATED = ("lenet",)


@pytest.mark.parametrize(
    "name,batch,size,train",
    [
        pytest.param(
            *network, train, id=f"{network[0]}-{mode}", marks=() if train or network[0] in EVALUATED else (SWEEP,)
        )
        for network in NETWORKS
        for train, mode in ((False, "eval"), (True, "train"))
    ],
)
def test_network(ocl_device, name, batch, size, train, tmp_path):
    check_network(name, batch, size, train, ocl_device, tmp_path)


@pytest.mark.needs("sweep")
@pytest.mark.parametrize("name,batch,size", LARGE, ids=[n[0] for n in LARGE])
def test_large_network(ocl_device, name, batch, size, tmp_path):
    check_network(name, batch, size, True, ocl_device, tmp_path)


# The networks come from a part of the package, whose __init__ would register ocl.
CUDA_REFERENCE = """
    import sys, types
    sys.path.insert(0, {root!r})
    import torch
    package = sys.modules["torch_ocl_compile"] = types.ModuleType("torch_ocl_compile")
    package.__path__ = [{root!r} + "/torch_ocl_compile"]
    from tests.device.networks.gradients import forward_and_gradients
    torch.backends.cudnn.allow_tf32 = False
    model, x, y = torch.load({given!r}, weights_only=False)
    model = model.cuda()
    torch.save(forward_and_gradients(model, model, x.cuda(), y.cuda()), {result!r})
"""


def torch_fp32(model, x, y, ocl_device, tmp_path):
    """Returns PyTorch's own fp32 results: from CUDA if the OpenCL device is a GPU, else from the CPU.

    CUDA runs in a separate process: beside a registered `ocl`, CUDA tensors have no backward.
    """
    if torch.ocl.get_device_properties(ocl_device).is_cpu or not torch.cuda.is_available():
        plain = copy.deepcopy(model)
        return forward_and_gradients(plain, plain, x, y)
    given, result = str(tmp_path / "given.pt"), str(tmp_path / "result.pt")
    torch.save((model, x, y), given)
    program = textwrap.dedent(CUDA_REFERENCE).format(root=str(ROOT), given=given, result=result)
    environment = dict(os.environ, TORCH_OCL_AUTOLOAD="never")
    subprocess.run([sys.executable, "-X", "faulthandler", "-c", program], env=environment, check=True, cwd=ROOT)
    return torch.load(result)


def compiled_results(model, x, y, ocl_device, **options):
    torch._dynamo.reset()
    ported = copy.deepcopy(model).to(ocl_device)
    compiled = torch.compile(ported, backend="ocl", options={"fallback": "error", **options})
    return forward_and_gradients(ported, compiled, x.to(ocl_device), y.to(ocl_device))


@pytest.mark.parametrize(
    "name,batch,size",
    [pytest.param("mlp", 16, 0, marks=SWEEP), ("lenet", 4, 28), pytest.param("resnet18", 2, 64, marks=SWEEP)],
    ids=["mlp", "lenet", "resnet18"],
)
def test_network_with_gpu_kernels(name, batch, size, tmp_path):
    """The kernels for GPUs are portable OpenCL C: on a CPU runtime they are slow, but right."""
    check_network(name, batch, size, True, "ocl:0", tmp_path, kernel_family="group")


@pytest.mark.sampled(first=3)
@pytest.mark.parametrize(("vector_floats", "units"), [(4, 8), (8, 64), (16, 1)])
@pytest.mark.parametrize(
    "name,batch,size",
    [("lenet", 4, 28), pytest.param("resnet18", 2, 64, marks=SWEEP)],
    ids=["lenet", "resnet18"],
)
def test_network_for_other_cpus(name, batch, size, vector_floats, units, tmp_path):
    """Runs the kernels that a CPU with other vectors and another number of cores would get."""
    check_network(name, batch, size, True, "ocl:0", tmp_path, vector_floats=vector_floats, units=units)


def launches_of(step):
    step()
    with torch.ocl.record() as launches:
        step()
    torch.ocl.synchronize()
    return launches


def test_resnet18_launches_and_bits(ocl_device):
    """Inference and training have the expected number of launches, and a second step gives the same bits."""
    model, x, _ = networks.make("resnet18", 2, 64)
    model, x = model.to(ocl_device), x.to(ocl_device)
    y = torch.randint(1000, (2,), device=ocl_device)
    compiled = torch.compile(model, backend="ocl", options={"fallback": "error"})
    model.eval()
    with torch.no_grad():
        inference = launches_of(lambda: compiled(x))
    assert 20 <= len(inference) <= 45, [k.kind for k in inference]
    model.train()

    def step():
        model.zero_grad(set_to_none=True)
        F.cross_entropy(compiled(x), y).backward()

    step()
    first = [p.grad.cpu() for p in model.parameters()]
    training = launches_of(step)
    assert 60 <= len(training) <= 150, f"{len(training)}: {[k.kind for k in training]}"
    assert all(torch.equal(p.grad.cpu(), a) for p, a in zip(model.parameters(), first, strict=True))

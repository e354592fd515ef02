# tests/device/stored/test_package_networks.py: whole networks of torchvision and transformers, packaged and run without PyTorch.
"""Weights are random. A plain run packages one network of each library, --sweep all 23."""

import pytest
import torch
from torch import nn

import ocl_run
from tests.device.networks.whole_models import import_models
from torch_ocl_compile import package

SIDES = {"inception_v3": 299}
TORCHVISION = [
    *("alexnet", "vgg11", "resnet18", "resnet50", "resnext50_32x4d", "wide_resnet50_2", "densenet121", "squeezenet1_1"),
    *("googlenet", "inception_v3", "mobilenet_v2", "mobilenet_v3_small", "shufflenet_v2_x1_0", "mnasnet1_0"),
    *("efficientnet_b0", "regnet_y_400mf", "convnext_tiny", "vit_b_16", "swin_t"),
]
SLOW = pytest.mark.needs("sweep")


class First(nn.Module):
    """A model of transformers that returns its first result."""

    def __init__(self, model, *names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs, strict=True)), use_cache=False, return_dict=False)[0]


class Image(First):
    def forward(self, pixels):
        return self.model(pixels, return_dict=False)[0]


def ids(length):
    return torch.randint(0, 1000, (2, length))


TRANSFORMERS = {
    "gpt2": lambda hf: (First(hf.GPT2LMHeadModel(hf.GPT2Config(n_layer=2)), "input_ids"), (ids(16),)),
    "bert": lambda hf: (Image(hf.BertModel(hf.BertConfig(num_hidden_layers=2))), (ids(16),)),
    "t5": lambda hf: (
        First(hf.T5ForConditionalGeneration(hf.T5Config(num_layers=2)), "input_ids", "decoder_input_ids"),
        (ids(16), ids(8)),
    ),
    "vit": lambda hf: (Image(hf.ViTModel(hf.ViTConfig(num_hidden_layers=2))), (torch.randn(2, 3, 224, 224),)),
}


def check(tmp_path, device, model, inputs):
    model = model.eval()
    package.save(tmp_path / "network.ocl", model, inputs)
    found = ocl_run.load(tmp_path / "network.ocl", device=torch.device(device).index or 0)(*inputs)
    with torch.no_grad():
        single = model(*inputs)
        double = model.double()(*(x.double() if x.is_floating_point() else x for x in inputs))
    error, usual = (found - double).abs().max(), (single - double).abs().max()
    # PyTorch's sums on the CPU, with which this compares, are of parts in wide registers, and more exact than those of a GPU.
    times = 3 if torch.ocl.get_device_properties(device).is_cpu else 8
    assert error <= times * usual + 1e-7 * double.abs().max()


@pytest.mark.parametrize("name", [n if n == "resnet18" else pytest.param(n, marks=SLOW) for n in TORCHVISION])
def test_torchvision(ocl_device, tmp_path, name):
    vision = import_models("torchvision")
    torch.manual_seed(0)
    settings = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    side = SIDES.get(name, 224)
    check(
        tmp_path, ocl_device, getattr(vision.models, name)(weights=None, **settings), (torch.randn(1, 3, side, side),)
    )


@pytest.mark.parametrize("name", [n if n == "bert" else pytest.param(n, marks=SLOW) for n in TRANSFORMERS])
def test_transformers(ocl_device, tmp_path, name):
    hf = import_models("transformers")
    torch.manual_seed(0)
    check(tmp_path, ocl_device, *TRANSFORMERS[name](hf))

# tests/libraries/use_torchao.py: quantize_ of torchao in five configurations, inference.
import copy

import torch
from torch import nn

from tests.libraries.harness import Side, Tensors, program


@program("torchao", "quantize_ with weights of int8, int4 and float8, and with dynamic int8; inference alone")
def quantized(side: Side) -> Tensors:
    from torchao import quantization as ao

    configurations = [
        ao.Int8WeightOnlyConfig(),
        ao.IntxWeightOnlyConfig(weight_dtype=torch.int4),
        ao.Float8WeightOnlyConfig(),
        ao.Int8DynamicActivationInt8WeightConfig(),
        ao.Int8DynamicActivationIntxWeightConfig(weight_dtype=torch.int4),
    ]
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64)).eval()
    x, found = torch.randn(4, 256), []
    for configuration in configurations:
        mine = copy.deepcopy(model).to(side.device)
        ao.quantize_(mine, configuration)
        with torch.no_grad():
            found.append(side.compiled(mine)(x.to(side.device)))
    return found

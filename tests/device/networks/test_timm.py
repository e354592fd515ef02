# tests/device/networks/test_timm.py: vision models of timm, one small random member of each family: forward and all gradients.
"""tests/libraries/use_timm.py says how large they are. A plain run tests three families, --sweep all."""

import pytest
import torch

from tests.device.networks.whole_models import check, import_models
from tests.libraries.use_timm import MODELS, model_of

import_models("timm")
pytestmark = pytest.mark.sampled()


def mixer():
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(num_classes=10, img_size=32, patch_size=8, num_blocks=2, embed_dim=32)


def convmixer():
    from timm.models.convmixer import ConvMixer

    return ConvMixer(32, 2, kernel_size=5, patch_size=4, num_classes=10)


def mobilevit():
    from timm.models.byobnet import ByobNet, ByoModelCfg
    from timm.models.mobilevit import _inverted_residual_block, _mobilevit_block

    blocks = (
        _inverted_residual_block(d=1, c=8, s=2, br=2.0),
        _mobilevit_block(d=1, c=16, s=2, transformer_dim=24, transformer_depth=1, patch_size=2, br=2.0),
    )
    config = ByoModelCfg(
        blocks=blocks, stem_chs=8, stem_type="3x3", stem_pool="", downsample="", act_layer="silu", num_features=32
    )
    return ByobNet(config, num_classes=10)


# Family -> the name of its row in MODELS or OTHERS; or, as timm's functions fix the sizes, what makes the model.
FAMILIES = {
    "mixer": mixer,
    "convmixer": convmixer,
    "mobilevit": mobilevit,
    "deit": "deit_tiny_distilled_patch16_224",
    "swin": "swin_tiny_patch4_window7_224",
    "swinv2": "swinv2_tiny_window8_256",
    "res2net": "res2net50_26w_4s",
    "efficientnet": "test_efficientnet",
    "levit": "levit_128s",
    "nfnet": "test_nfnet",
    "coat": "coat_tiny",
    "convnext": "convnext_atto",
    "xcit": "xcit_nano_12_p16_224",
    "regnet": "regnetx_002",
    "mobilenetv3": "mobilenetv3_small_050",
}
# What MODELS has no row of.
OTHERS = [
    ("res2net50_26w_4s", 64, {"layers": (1, 1, 1, 1), "channels": (8, 16, 24, 32)}),
    ("levit_128s", 64, {"img_size": 64, "embed_dim": (32, 48), "key_dim": 8, "depth": (1, 1), "num_heads": (2, 3)}),
    ("coat_tiny", 32, {"img_size": 32, "embed_dims": (16, 24, 24, 24), "serial_depths": (1, 1, 1, 1), "parallel_depth": 1,
                       "mlp_ratios": (2,) * 4}),
]  # fmt: skip
SIZES = {name: (size, settings) for name, size, settings in [*MODELS, *OTHERS]}
PLAIN_RUN = {"mixer", "deit", "convmixer"}


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=() if f in PLAIN_RUN else pytest.mark.needs("sweep")) for f in FAMILIES]
)
def test_family(ocl_device, family):
    member = FAMILIES[family]
    if isinstance(member, str):
        size, settings = SIZES[member]
        check(lambda: (model_of(member, settings), [torch.randn(4, 3, size, size)]), ocl_device)
    else:
        check(lambda: (member(), [torch.randn(4, 3, 32, 32)]), ocl_device)

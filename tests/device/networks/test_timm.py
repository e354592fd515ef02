# tests/device/networks/test_timm.py: vision models of timm, one small random member of each family: forward and all gradients.
"""If all named variants of a family are large, its class is built directly. A plain run tests three families, --sweep
all."""

import pytest
import torch
from torch import nn

from tests.device.networks.whole_models import check, import_models

timm = import_models("timm")
pytestmark = pytest.mark.sampled()


def mixer():
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(num_classes=10, img_size=32, patch_size=8, num_blocks=2, embed_dim=32)


def convmixer():
    from timm.models.convmixer import ConvMixer

    return ConvMixer(32, 2, kernel_size=5, patch_size=4, num_classes=10)


def res2net():
    from timm.models.res2net import Bottle2neck
    from timm.models.resnet import ResNet

    return ResNet(
        Bottle2neck, [1, 1, 1, 1], channels=(8, 16, 24, 32), base_width=26, num_classes=10, block_args={"scale": 4}
    )


def efficientnet():
    from timm.models._efficientnet_builder import decode_arch_def
    from timm.models.efficientnet import EfficientNet

    blocks = [["ds_r1_k3_s1_e1_c8_se0.25"], ["ir_r2_k5_s2_e4_c16_se0.25"], ["ir_r1_k3_s2_e4_c24_se0.25"]]
    return EfficientNet(decode_arch_def(blocks), num_classes=10, num_features=32, stem_size=8, act_layer=nn.SiLU)


def levit():
    from timm.models.levit import Levit

    return Levit(img_size=64, num_classes=10, embed_dim=(32, 48), key_dim=8, depth=(1, 1), num_heads=(2, 3))


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


def nfnet():
    from timm.models.nfnet import NfCfg, NormFreeNet

    config = NfCfg(
        depths=(1, 1, 1, 1), channels=(16, 16, 24, 24), stem_type="deep_quad", stem_chs=16, group_size=8, extra_conv=True,
        gamma_in_act=True, same_padding=True, skipinit=True, num_features=32, act_layer="gelu", attn_layer="se",
        attn_kwargs={"rd_ratio": 0.5})  # fmt: skip
    return NormFreeNet(config, num_classes=10)


def coat():
    from timm.models.coat import CoaT

    widths, ones = (16, 24, 24, 24), (1, 1, 1, 1)
    return CoaT(
        img_size=32,
        patch_size=4,
        num_classes=10,
        embed_dims=widths,
        serial_depths=ones,
        parallel_depth=1,
        mlp_ratios=(2,) * 4,
    )


def named(name, **settings):
    return lambda: timm.create_model(name, num_classes=10, **settings)


# Family -> (model, image size)
FAMILIES = {
    "mixer": (mixer, 32),
    "deit": (named("deit_tiny_distilled_patch16_224", img_size=64, depth=2, embed_dim=48, num_heads=3), 64),
    "swin": (named("swin_tiny_patch4_window7_224", img_size=56, embed_dim=24, depths=(2, 2), num_heads=(2, 4)), 56),
    "swinv2": (named("swinv2_tiny_window8_256", img_size=64, embed_dim=24, depths=(2, 2), num_heads=(2, 4)), 64),
    "convmixer": (convmixer, 32),
    "res2net": (res2net, 64),
    "efficientnet": (efficientnet, 32),
    "levit": (levit, 64),
    "mobilevit": (mobilevit, 32),
    "nfnet": (nfnet, 64),
    "coat": (coat, 32),
    "convnext": (named("convnext_atto", depths=(1, 1, 1, 1), dims=(16, 24, 32, 48)), 64),
    "xcit": (named("xcit_nano_12_p16_224", img_size=64, depth=2, embed_dim=32, num_heads=4), 64),
    "regnet": (named("regnetx_002"), 64),
    "mobilenetv3": (named("mobilenetv3_small_050"), 64),
}
PLAIN_RUN = {"mixer", "deit", "convmixer"}


@pytest.mark.parametrize(
    "family", [pytest.param(f, marks=() if f in PLAIN_RUN else pytest.mark.needs("sweep")) for f in FAMILIES]
)
def test_family(ocl_device, family):
    make, size = FAMILIES[family]
    check(lambda: (make(), [torch.randn(4, 3, size, size)]), ocl_device)

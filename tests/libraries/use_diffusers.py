# tests/libraries/use_diffusers.py: a small UNet of diffusers and a step of its scheduler.
import torch

from tests.libraries.harness import Tensors, steps_of

LIBRARY, WHAT = "diffusers", "UNet2DModel, DDPMScheduler.add_noise"


def run(device: str) -> Tensors:
    from diffusers import DDPMScheduler, UNet2DModel

    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    model = UNet2DModel(
        sample_size=16, in_channels=1, out_channels=1, layers_per_block=1, block_out_channels=(8, 16), norm_num_groups=4,
        attention_head_dim=8, **blocks)  # fmt: skip
    images, noise, times = torch.randn(2, 1, 16, 16), torch.randn(2, 1, 16, 16), torch.tensor([3, 500])
    noisy = DDPMScheduler().add_noise(images.to(device), noise.to(device), times.to(device))
    return steps_of(model, [noisy, times], device, output=lambda out: out.sample)

# tests/libraries/use_diffusers.py: networks, schedulers and a pipeline of diffusers.
from __future__ import annotations

from functools import partial
from typing import Any

import torch

from tests.libraries.harness import Side, Tensors, add, parameters, program, steps_of

BLOCKS = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
UNET = {"sample_size": 16, "in_channels": 1, "out_channels": 1, "layers_per_block": 1, "block_out_channels": (8, 16),
        "norm_num_groups": 4, "attention_head_dim": 8}  # fmt: skip
SCHEDULERS = ("DDIMScheduler", "EulerDiscreteScheduler", "DPMSolverMultistepScheduler", "UniPCMultistepScheduler",
              "FlowMatchEulerDiscreteScheduler", "PNDMScheduler")  # fmt: skip


@program("diffusers", "UNet2DModel, DDPMScheduler.add_noise")
def unet(side: Side) -> Tensors:
    from diffusers import DDPMScheduler, UNet2DModel

    images, noise, times = torch.randn(2, 1, 16, 16), torch.randn(2, 1, 16, 16), torch.tensor([3, 500])
    noisy = DDPMScheduler().add_noise(*side.moved([images, noise, times]))
    return steps_of(UNet2DModel(**UNET, **BLOCKS), [noisy, times], side)


@program("diffusers", "UNet2DConditionModel with LoRA of peft")
def conditional_lora(side: Side) -> Tensors:
    from diffusers import UNet2DConditionModel
    from peft import LoraConfig

    blocks = {
        "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
    }
    sizes = UNET | {"attention_head_dim": 2, "cross_attention_dim": 16, "in_channels": 4, "out_channels": 4}
    model = UNet2DConditionModel(**sizes, **blocks)
    model.requires_grad_(False)
    model.add_adapter(LoraConfig(r=4, target_modules=["to_q", "to_v"], init_lora_weights=False))
    words = torch.randn(2, 5, 16)
    return steps_of(model, [torch.randn(2, 4, 16, 16), torch.tensor([3, 500]), words], side)


@program("diffusers", "AutoencoderKL: encode, decode")
def vae(side: Side) -> Tensors:
    from diffusers import AutoencoderKL

    kinds = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    model = AutoencoderKL(block_out_channels=(8, 16), norm_num_groups=4, latent_channels=4, sample_size=16, **kinds)
    return steps_of(model, [torch.randn(1, 3, 16, 16)], side)


@program("diffusers", "DiTTransformer2DModel")
def dit(side: Side) -> Tensors:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=8,
        in_channels=4,
        num_layers=2,
        sample_size=8,
        patch_size=2,
        num_embeds_ada_norm=10,
    )
    given = {
        "hidden_states": torch.randn(2, 4, 8, 8),
        "timestep": torch.tensor([3, 500]),
        "class_labels": torch.tensor([1, 2]),
    }
    return steps_of(model, given, side)


@program("diffusers", "FluxTransformer2DModel")
def flux(side: Side) -> Tensors:
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8))  # fmt: skip
    places = torch.stack([torch.zeros(16), torch.arange(16) // 4, torch.arange(16) % 4], 1)
    given = {"hidden_states": torch.randn(1, 16, 4), "encoder_hidden_states": torch.randn(1, 6, 32), "img_ids": places,
             "pooled_projections": torch.randn(1, 32), "timestep": torch.tensor([0.5]), "txt_ids": torch.zeros(6, 3)}  # fmt: skip
    return steps_of(model, given, side)


def scheduled(name: str, side: Side) -> Tensors:
    """Four steps of a scheduler around a compiled function."""
    import diffusers

    scheduler = getattr(diffusers, name)()
    scheduler.set_timesteps(4, device=side.device)
    x = torch.randn(1, 3, 8, 8).to(side.device)
    call, found = side.compiled(lambda x: torch.tanh(x.roll(1, -1)) * 0.5), []
    for t in scheduler.timesteps:
        taken: Any = scheduler.scale_model_input(x, t) if hasattr(scheduler, "scale_model_input") else x
        x = scheduler.step(call(taken), t, x).prev_sample
        found.append(x)
    return found


for name in SCHEDULERS:
    add("diffusers", name.removesuffix("Scheduler").lower(), f"{name}: four steps", partial(scheduled, name))


@program("diffusers", "DDIMPipeline, noise of the CPU's generator")
def pipeline(side: Side) -> Tensors:
    from diffusers import DDIMPipeline, DDIMScheduler, UNet2DModel

    model = UNet2DModel(**UNET, **BLOCKS).eval()
    pipe = DDIMPipeline(model, DDIMScheduler()).to(side.device)
    pipe.set_progress_bar_config(disable=True)
    model.forward = side.compiled(model.forward)
    images = pipe(num_inference_steps=3, output_type="np", generator=torch.Generator().manual_seed(0)).images
    return [torch.from_numpy(images), *parameters(model)[:2]]

# tests/libraries/use_text.py: x-transformers and vector-quantize-pytorch.
import torch

from tests.libraries.harness import Side, Tensors, program, steps_of


@program("x-transformers", "AutoregressiveWrapper over a decoder with rotary positions and gated layers")
def decoder(side: Side) -> Tensors:
    from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper

    layers = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, rotary_pos_emb=True, ff_glu=True, use_rmsnorm=True)
    model = AutoregressiveWrapper(TransformerWrapper(num_tokens=64, max_seq_len=16, attn_layers=layers))
    words = torch.arange(24).mul(5).remainder(64).reshape(2, 12)
    return steps_of(model, [words], side)


@program("x-transformers", "ViTransformerWrapper over an encoder with flash attention and registers")
def vision(side: Side) -> Tensors:
    from x_transformers import Encoder, ViTransformerWrapper

    layers = Encoder(dim=32, depth=2, heads=4, attn_dim_head=8, attn_flash=True)
    model = ViTransformerWrapper(image_size=32, patch_size=8, num_classes=10, num_register_tokens=2, attn_layers=layers)
    return steps_of(model, [torch.randn(2, 3, 32, 32)], side)


@program("vector-quantize-pytorch", "VectorQuantize with a moving codebook")
def vector_quantize(side: Side) -> Tensors:
    from vector_quantize_pytorch import VectorQuantize

    class Coder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
            self.codes = VectorQuantize(dim=16, codebook_size=12, decay=0.8)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            found, _, commitment = self.codes(self.first(x))
            return self.last(found), commitment

    return steps_of(Coder(), [torch.randn(2, 10, 8)], side)


@program("vector-quantize-pytorch", "FSQ")
def fsq(side: Side) -> Tensors:
    from vector_quantize_pytorch import FSQ

    class Coder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last, self.codes = torch.nn.Linear(8, 3), torch.nn.Linear(3, 8), FSQ(levels=[8, 5, 5])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.codes(self.first(x))[0])

    return steps_of(Coder(), [torch.randn(2, 10, 8)], side)

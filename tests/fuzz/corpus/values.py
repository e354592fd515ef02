# tests/fuzz/corpus/values.py: results that were wrong.
from tests.fuzz.corpus.row import f32, named

INF, NAN = 'float("inf")', 'float("nan")'


def filled(value: str, *at: int) -> list[str]:
    """Lines that put a value into an argument."""
    return [f"a0[..., {i}] = {value}" for i in at]


PROGRAMS = [
    named(
        "pool_of_infinite_edges",
        "padding counts as -inf, and won against -inf of the tensor: position -1, and no gradient",
        [f32(1, 2, 5)],
        [*filled(f"-{INF}", 0, 1, 4), "v0, v1 = F.max_pool1d(a0, 3, stride=1, padding=1, return_indices=True)"],
        ["v0", "v1"],
    ),
    named(
        "pool_of_several_nans",
        "of several NaN in a window, PyTorch takes the last",
        [f32(1, 2, 7)],
        [
            *filled(NAN, 1, 2, 4),
            "v0, v1 = F.max_pool1d(a0, 3, stride=1, padding=1, return_indices=True)",
            "v2, v3 = F.adaptive_max_pool1d(a0, 3, return_indices=True)",
        ],
        ["v0", "v1", "v2", "v3"],
    ),
    named(
        "pool_of_zeros_in_bytes",
        "padding counts as the least number, which bytes reach",
        ["make(device, (2, 5, 5), torch.uint8, 1, 0, 1)"],
        ["v0, v1 = F.max_pool2d(a0, 3, stride=1, padding=1, return_indices=True)"],
        ["v0", "v1"],
    ),
    named(
        "attention_and_a_mask_under_autocast",
        "the judge expected the CPU's types where a mask keeps fake tensors from telling those of the device",
        [f32(2, 1, 4, 8), f32(6)],
        ["a1[a1 > 0] += 1", "v0 = F.scaled_dot_product_attention(a0, a0, a0)"],
        ["v0"],
        autocast="float16",
    ),
    named(
        "gradient_of_attention_in_bfloat16",
        "errors of small differences of sums were taken for wrong rounding; PyTorch's fused kernel has larger ones",
        ["make(device, (12, 4), torch.bfloat16, 5).requires_grad_()"],
        ["v0 = F.scaled_dot_product_attention(a0, a0, a0)"],
        ["v0"],
        gradient=True,
    ),
    named(
        "gradient_of_attention_to_equal_values",
        "the gradient of the queries is 0, of which rounding leaves something",
        [
            "make(device, (3, 5, 5, 6), torch.float32, 5).requires_grad_()",
            "make(device, (1, 2, 1, 5), torch.float32, 6).expand(1, 2, 17, 5)",
        ],
        [
            "v0, v1 = a0.flatten()[:126].view((1, 2, 9, 7)), a0.flatten()[:238].view((1, 2, 17, 7))",
            "v2 = F.scaled_dot_product_attention(v0, v1, a1)",
        ],
        ["v2"],
        gradient=True,
    ),
]

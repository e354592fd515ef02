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
]

# tests/fuzz/corpus/kernels.py: kernels that did not build, or that the driver's compiler crashed on.
from tests.fuzz.corpus.row import f32, named

PROGRAMS = [
    named(
        "sine_in_place_of_every_second",
        "Intel's compiler crashed on a loop of scalars that stores where it loads, with a stride",
        [f"{f32(10)}[::2]", f"{f32(4, 12)}[:, 1::3]"],
        ["a0.sin_()", "a1.atan_()"],
    ),
    named(
        "sums_of_exponentials_of_single_columns",
        "Intel's compiler crashed when it vectorised the reduction of columns that fill no vector",
        [f32(1, "n + 1", 2), f32(2, "n", seed=3)],
        ["a0.abs_()", "a1.cumsum_(1)", "v2 = a0.squeeze(-3)", "v3 = v2.logsumexp(0)"],
        ["v3"],
        dynamic="mark",
    ),
    named(
        "bytes_become_bool",
        "a vector of chars was compared with an int",
        ["make(device, (8, 3), torch.int8, 1)", "make(device, (40,), torch.uint8, 1)"],
        ["v0 = a0.to(torch.bool)", "v1 = a1.to(torch.bool)"],
        ["v0", "v1"],
    ),
    named(
        "pool_of_one_column",
        "min(long, int) in the index of a window that only fits once",
        [f32(2, 3, 8, 6)],
        ["v0 = F.avg_pool2d(a0, kernel_size=2)", "v1 = F.max_pool2d(v0, 3, stride=2, ceil_mode=True)"],
        ["v1"],
        dynamic="all",
    ),
    named(
        "attention_to_keys_of_symbolic_head_size",
        "the head size of the keys stayed symbolic, though the head size of the queries was known: not a constant",
        [f"{f32(2, 3, 4, 6)}.requires_grad_()", f"{f32(2, 2, 3, 7)}.requires_grad_()"],
        ["v0 = a0.flatten()[:84].view(2, 2, 3, 7)", "v1 = F.scaled_dot_product_attention(v0, a1, v0)"],
        ["v1"],
        dynamic="all",
        gradient=True,
    ),
    named(
        "sum_of_a_repeated_value",
        "Intel's compiler dropped a block of a sum when it unrolled the loop over blocks of a repeated value",
        [f"{f32()}.requires_grad_()", f"{f32(5, 2, 1, 8, seed=2)}.requires_grad_()"],
        ["v0 = a0.exp()", "v1 = F.kl_div(v0, v0.abs().expand_as(a1), reduction='batchmean', log_target=True)"],
        ["v1"],
        gradient=True,
    ),
    named(
        "power_of_every_second",
        "Intel's compiler crashed when it vectorised a sum in blocks that loads with a stride and calls pow",
        [f"{f32(1, 141)}[:, 1::2]"],
        ["v0 = a0.norm(p=3)"],
        ["v0"],
    ),
]

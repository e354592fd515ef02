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
    named(
        "view_of_what_is_written_at_an_offset",
        "a result that views a written argument lost the argument's offset where it follows a size",
        ["make(device, (9, 2 * n + 1, 4, 1), torch.float32, 3 + 9 * k)[1:]"],
        ["v0 = a0.mT", "v1 = v0.flatten()[:35].view((5, 7))", "v2 = v1.sub_(1.5)"],
        ["v2", "v0"],
        calls=(2, 16),
    ),
    named(
        "result_written_behind_a_graph_break",
        "a result with strides of its own was a view to autograd, which forbids to write to views that a custom function made",
        [f32(1, 1, 1), "make(device, (1, 1, 1), torch.float32, 4).requires_grad_()"],
        ["v0 = torch.conv_transpose1d(a0, a1, None, 2)", "v0[v0 > 0] = v0[v0 > 0]"],
        ["v0"],
        gradient=True,
    ),
    named(
        "first_polygamma",
        "PyTorch's formula was not ours: other values in fp64, and an infinite gradient of digamma where its own is large",
        ["make(device, (), torch.float64, 2)", "make(device, (8, 4), torch.float32, 1).requires_grad_()"],
        ["v0 = torch.polygamma(1, a0.clamp(0.17, 8.87))", "v1 = torch.digamma(a1)"],
        ["v0", "v1"],
        gradient=True,
    ),
    named(
        "airy_at_infinity",
        "0 where PyTorch has NaN",
        [f32(9)],
        ["v0 = torch.special.airy_ai(a0.clamp(min=0.125) * math.inf)"],
        ["v0"],
    ),
    named(
        "grid_of_nan",
        "a point at NaN lies at the border, as PyTorch clips it",
        [f32(2, 3, 6, 5), "special(device, (2, 4, 7, 2), torch.float32, 6)"],
        [
            "v0 = a1.clamp(-1.25, 1.25)",
            "v1 = F.grid_sample(a0, v0, mode='nearest', padding_mode='border', align_corners=False)",
            "v2 = F.grid_sample(a0, v0, padding_mode='reflection', align_corners=True)",
        ],
        ["v1", "v2"],
    ),
    named(
        "huber_loss_of_two_types",
        "the result has the type of the input, not the promoted one",
        ["make(device, (2, 8), torch.bfloat16, 1)", f32(2, 8)],
        ["v0 = F.huber_loss(a0, a1)", "v1 = F.huber_loss(a1, a0, reduction='none', delta=0.5)"],
        ["v0", "v1"],
    ),
    named(
        "strided_scatter_into_an_expanded_tensor",
        "the window lies in a contiguous copy, not in the memory that the elements share",
        ["make(device, (1, 1), torch.float32, 4).expand(6, 8)", f32(2, 3)],
        ["v0 = torch.as_strided_scatter(a0, a1, (2, 3), (8, 2), 1)"],
        ["v0"],
    ),
    named(
        "shuffled_channels_last",
        "the result was contiguous",
        ["make(device, (8, 2, 5, 3), torch.float16, 3).permute(0, 3, 1, 2)"],
        ["v0 = torch.channel_shuffle(a0, 3)"],
        ["v0"],
        mode="eager",
    ),
    named(
        "attention_of_matrices_under_autocast",
        "attention of two dimensions stayed in float32",
        [f32(3, 5), "make(device, (3, 3), torch.float32, 2)"],
        ["v0 = F.scaled_dot_product_attention(a0, a0, a0, a1)"],
        ["v0"],
        autocast="bfloat16",
    ),
    named(
        "soft_margin_loss_of_two_types",
        "the result has the type of the input, not the promoted one",
        ["make(device, (), torch.float16, 1)", "make(device, (2, 8), torch.bfloat16, 3)", f32(), f32(2, 8)],
        ["v0 = F.soft_margin_loss(a0, a2, reduction='none')", "v1 = F.soft_margin_loss(a1, a3)"],
        ["v0", "v1"],
    ),
    named(
        "pixels_shuffled_channels_last",
        "the result of an image of one pixel was contiguous",
        ["make(device, (1, 1, 1, 8), torch.float32, 2).permute(0, 3, 1, 2)"],
        ["v0 = torch.pixel_shuffle(a0, 2)", "v1 = torch.pixel_unshuffle(v0, 2)"],
        ["v0", "v1"],
    ),
    named(
        "strided_view_of_one_of_several_views",
        "AOTAutograd says of views made by unbind that they are no aliases; the result had memory of its own",
        [f"{f32(1, 1, 2)}.requires_grad_()"],
        ["v0, v1 = a0.unbind(2)", "v2 = v1.as_strided((1, 1), (1, 1), 1)"],
        ["v2"],
        gradient=True,
    ),
    named(
        "attention_with_a_row_that_sees_nothing",
        "masked scores are constants: no gradient goes back to queries and keys, where there was NaN",
        [
            f"{f32(2, 3, 5, 8)}.requires_grad_()",
            f"{f32(2, 3, 7, 8)}.requires_grad_()",
            f"{f32(2, 3, 7, 8)}.requires_grad_()",
            "torch.arange(5, device=device)[:, None] > torch.arange(7, device=device)",
        ],
        [
            "v0 = a0.matmul(a1.mT)",
            "v1 = v0.masked_fill(~a3, float('-inf'))",
            "v2 = torch.softmax(v1, -1)",
            "v3 = v2.matmul(a2)",
        ],
        ["v3"],
        gradient=True,
    ),
    named(
        "softmax_of_scalars",
        "1 and 0 also for infinity and NaN, and no gradient",
        [f"{f32()}.requires_grad_()", f"torch.full((), {INF}, device=device)", f"torch.full((), {NAN}, device=device)"],
        [
            "v0 = F.softmax(a1, 0)",
            "v1 = F.log_softmax(a1, 0)",
            "v2 = F.softmax(a2, 0)",
            "v3 = F.log_softmax(a2, 0)",
            "v4 = F.log_softmax(a0, 0)",
            "v5 = v4.var(0)",
        ],
        ["v0", "v1", "v2", "v3", "v5"],
        gradient=True,
    ),
    named(
        "window_on_memory_around_its_tensor",
        "division by zero where the tensor has no elements, but its memory has",
        ["make(device, (3, 1, 4, 3), torch.float32, 1)[..., 1:-2]", f"{f32(10)}[2:5]"],
        ["v0 = a0.as_strided((3, 4), (1, 7), 2)", "v1 = v0.add(1)", "v2 = a1.as_strided((2, 2), (3, 1), 2) + 1"],
        ["v1", "v2"],
    ),
    named(
        "empty_window",
        "division by zero where neither the window nor its tensor has elements",
        [f32(0, 0, 0), f32(3, 0), f32(12)],
        [
            "a0.as_strided((5, 8, 0), (8, 1, 1), 0).neg_()",
            "v0 = a1.as_strided((0, 2), (1, 1), 0) + 1",
            "v1 = a2.as_strided((2, 0), (3, 1), 1) + 1",
        ],
        ["v0", "v1"],
    ),
    named(
        "grid_sample_of_nothing",
        "-1 in a shape says nothing where a batch, the channels or the points are 0",
        [
            f"{f32(*s)}.requires_grad_()"
            for s in ((0, 4, 6, 6), (0, 2, 3, 2), (2, 0, 6, 6), (2, 2, 3, 2), (2, 4, 6, 6), (2, 0, 3, 2))
        ],
        [
            "v0 = F.grid_sample(a0, a1, align_corners=False)",
            "v1 = F.grid_sample(a2, a3, align_corners=False)",
            "v2 = F.grid_sample(a4, a5, align_corners=False)",
        ],
        ["v0", "v1", "v2"],
        gradient=True,
    ),
    named(
        "convolution_of_nothing",
        "division by zero in three dimensions without a batch, and in the gradient without channels; a bias without a gradient",
        [f"{f32(*s)}.requires_grad_()" for s in ((0, 4, 5, 6, 7), (6, 4, 1, 1, 1), (2, 0, 6, 6), (5, 0, 3, 3), (5,))],
        [
            "v0 = F.conv3d(a0, a1)",
            "v1 = F.conv2d(a2, a3)",
            "v2 = F.conv2d(a2, a3, a4)",
            "v3 = F.conv_transpose3d(v0, a1, stride=2)",
        ],
        ["v0", "v1", "v2", "v3"],
        gradient=True,
    ),
    named(
        "norm_of_nothing",
        "a variance over two dimensions, of which the inner has no elements, ended the process; group_norm divided by zero",
        [f"{f32(*s)}.requires_grad_()" for s in ((6, 2, 0), (3, 4, 0, 6), (4,), (3, 0, 5, 6), (0,))],
        [
            "v0 = a0.var((1, 2))",
            "v1 = F.group_norm(a1, 2, a2)",
            "v2 = F.group_norm(a3, 2, a4)",
            "v3 = F.group_norm(a3, 2)",
        ],
        ["v0", "v1", "v2", "v3"],
        gradient=True,
    ),
    named(
        "sum_into_integers",
        "called eagerly, elements were not cast to the type of out before they were added",
        [
            "make(device, (5, 3), torch.float32, 1)",
            "make(device, (0,), torch.int64, 2)",
            "make(device, (3,), torch.int32, 3)",
        ],
        ["torch.sum(a0, 0, out=a1)", "torch.prod(a0, 0, out=a2)"],
        mode="eager",
    ),
    named(
        "power_of_bool",
        "bool to a bool is bool; torch traces it as int64",
        ["make(device, (0, 2), torch.bool, 1)", "make(device, (7,), torch.bool, 1)"],
        ["v0 = a0 ** True", "v1 = a1 ** False", "v2 = a1 ** 2"],
        ["v0", "v1", "v2"],
    ),
    named(
        "rrelu_in_evaluation",
        "called eagerly, it raised: PyTorch's decomposition empties the tensor of slopes",
        [f32(3, 5)],
        ["v0 = F.rrelu(a0)", "v1 = F.rrelu(a0, 0.25, 0.5)"],
        ["v0", "v1"],
        mode="eager",
    ),
    named(
        "gru_cell_of_transposed_state",
        "the result was contiguous; on the CPU it has the strides of the state",
        [f32(2, 3), f"{f32(4, 2)}.t()", f32(12, 3), f32(12, 4)],
        ["v0 = torch.gru_cell(a0, a1, a2, a3)"],
        ["v0"],
    ),
]

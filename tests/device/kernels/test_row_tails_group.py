# tests/device/kernels/test_row_tails_group.py: vectors in rows that are not whole vectors, in the form for GPUs, on every device.
import pytest
import torch


def scaled(x, row):
    return x.exp() * row, x.relu() + torch.arange(x.shape[-1], device=x.device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("columns", "pitch"), [(129, 136), (131, 132), (134, 136), (70, 72), (65, 65), (131, 131), (257, 257)]
)
def test_padded_rows(ocl_device, dtype, columns, pitch):
    options = {"fallback": "error", "kernel_family": "group"}
    compiled = torch.compile(scaled, backend="ocl", options=options, dynamic=False)
    torch.manual_seed(4)
    for first in (0, 1):
        memory = torch.randn(3 * 5 * pitch + first).to(dtype)
        row = torch.randn(3, 5, 1)
        x, on_device = (m[first:].view(3, 5, pitch)[..., :columns] for m in (memory, memory.to(ocl_device)))
        target = torch.full((3, 5, pitch), 7.0, dtype=dtype, device=ocl_device)[..., :columns]
        ours = compiled(on_device, row.to(ocl_device))
        torch.compile(lambda t, x: t.copy_(x * 2), backend="ocl", options=options, dynamic=False)(target, on_device)
        # Rows that are loaded begin at other elements than those that are stored.
        twice, packed = target.cpu(), on_device.contiguous()
        torch.compile(lambda t, x: t.copy_(x * 2), backend="ocl", options=options, dynamic=False)(
            target.zero_(), packed
        )
        assert torch.equal(target.cpu(), twice)
        for a, exact in zip([*ours, target], [*scaled(x.double(), row.double()), x.double() * 2], strict=True):
            epsilon = torch.finfo(dtype).eps  # exp(x) is rounded to the type of x.
            torch.testing.assert_close(a.cpu().double(), exact, rtol=2 * epsilon, atol=2 * epsilon)
        padding = target.as_strided((3, 5, pitch - columns), target.stride(), columns)
        assert bool((padding == 7).all()), "the padding was written"

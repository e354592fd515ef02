# tests/device/runtime/test_large_groups.py: kernels get the work-groups that the device runs, whatever the driver says of them.
import torch

from torch_ocl_compile import _C


def test_long_rows_have_large_groups(ocl_device):
    """NVIDIA's driver grants kernels 256 work-items that run with 1024. Each compute unit has rows of its own here: fewer rows are
    divided among units."""
    compiled = torch.compile(
        lambda x: torch.log_softmax(x, 1), backend="ocl", options={"fallback": "error", "kernel_family": "group"}
    )
    properties = _C.device_properties(torch.device(ocl_device).index or 0)
    x = torch.randn(2 * properties["multi_processor_count"], 50257)
    on_device = x.to(ocl_device)
    compiled(on_device)
    with torch.ocl.record() as launches:
        got = compiled(on_device)
    torch.testing.assert_close(got.cpu().double(), torch.log_softmax(x.double(), 1), rtol=1e-6, atol=1e-6)
    assert [launch.local_size[0] for launch in launches] == [min(1024, properties["max_group_size"])]

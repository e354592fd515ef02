# tests/device/ops/test_large_tensors.py: tensors of more than 2^31 elements, if memory allows; only with --sweep.
import pytest
import torch

ELEMENTS = 2**31 + 4099


# Only with --sweep: the test needs gigabytes of memory and a minute.
@pytest.mark.needs("sweep")
def test_more_elements_than_an_int_counts(ocl_device):
    free, _ = torch.accelerator.get_memory_info(ocl_device)
    if free < 3 * ELEMENTS:
        pytest.skip(f"{free >> 30} GiB are free")

    def function(x, at):
        y = x + 1
        return y[-5:], y[at], x.sum(dtype=torch.int64), x[2**31 :].amax()

    x = torch.zeros(ELEMENTS, dtype=torch.uint8, device=ocl_device)
    x[-3:] = 7
    x[2**31 - 1] = 9
    at = torch.tensor([0, 2**31 - 1, 2**31 + 4098, -1, -5])
    run = torch.compile(function, backend="ocl", options={"fallback": "error"})
    tail, picked, total, largest = run(x, at.to(ocl_device))
    assert tail.tolist() == [1, 1, 8, 8, 8]
    assert picked.tolist() == [1, 10, 8, 8, 1]
    assert total.item() == 30 and largest.item() == 7

# tests/device/kernels/test_sums_in_order.py: stores of a scan that add to what is there, on CPUs; scatter_add by them.
import pytest
import torch

from tests.device.kernels.test_ir_graphs import FAMILIES, run, with_results

GRAPH = """buffer b0 in0 i64 [50] strides [1] input 0
buffer b1 in1 f32 [50, 33] strides [33, 1] input 1
buffer b2 buf2 f32 [33, 7] strides [7, 1]
buffer b3 buf3 f32 [7, 33] strides [33, 1]
buffer b4 buf4 i64 [7, 2, 33] strides [66, 33, 1]
inputs b0 b1
node map [7, 33]
  v0 = load f32 b1[i0, i1]
  v1 = constant i64 3
  store b2[i1, i0] = v0
  store b3[i0, i1] = v0
  store b4[i0, 0, i1] = v1
  store b4[i0, 1, i1] = v1
node scan sum whole [33] over [50]
  v0 = load f32 b1[r0, i0]
  v1 = load i64 b0[r0]
  v2 = constant i64 4
  v3 = ge bool v1 v2
  v4 = constant f32 0.0
  v5 = gt bool v0 v4
  v6 = index i64 (r0*5 + i0*3) % 7
  v7 = index i64 r0 % 7
  v8 = constant bool 1
  reduce v0 reset v8
  store b2[i0, v6] sum= result 0 if v5
  store b3[v7, i0] sum= result 0 if v3
node scan sum whole [33] over [50]
  v0 = load i64 b0[r0]
  v1 = index i64 r0 % 7
  v2 = index i64 r0 % 2
  v3 = load f32 b1[r0, i0]
  v4 = constant f32 0.5
  v5 = gt bool v3 v4
  v6 = constant bool 1
  reduce v0 reset v6
  store b4[v1, v2, i0] sum= result 0 if v5
"""


@FAMILIES
@pytest.mark.parametrize("vector_floats", [0, 4])
def test_stores_that_add(ocl_device, family, vector_floats):
    run(ocl_device, with_results(GRAPH), family, vector_floats=vector_floats)


SHAPES = {"rows": ((40, 300), 1, 200), "columns": ((300, 40), 0, 200), "slices": ((2, 70000), 1, 9)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64], ids=str)
@pytest.mark.parametrize("name", SHAPES)
def test_scatter_add(ocl_device, name, dtype):
    """Eager and compiled, into a new tensor and in place. Every run has the same bits."""
    shape, dim, places = SHAPES[name]
    generator = torch.Generator().manual_seed(0)
    result = [places if d == dim else n for d, n in enumerate(shape)]
    x, source = (torch.randn(s, generator=generator).mul(8).to(dtype) for s in (result, shape))
    index = torch.randint(places, shape, generator=generator)
    exact = x.double().scatter_add(dim, index, source.double())
    ours, i, s = x.to(ocl_device), index.to(ocl_device), source.to(ocl_device)

    def out_of_place(x, i, s):
        return x.scatter_add(dim, i, s)

    def in_place(x, i, s):
        return x.scatter_add_(dim, i, s)

    scale = x.double().abs().scatter_add(dim, index, source.double().abs())
    unit = 0 if dtype is torch.int64 else torch.finfo(dtype).eps
    found = []
    for function in (out_of_place, in_place):
        for way in (function, torch.compile(function, backend="ocl", options={"fallback": "error"}, dynamic=False)):
            found += [way(ours.clone(), i, s).cpu() for _ in range(2)]
    for made in found:
        assert torch.equal(made, found[0])
    error = (found[0].double() - exact).abs()
    assert bool((error <= unit * exact.abs() + 64 * torch.finfo(torch.float32).eps * scale).all())

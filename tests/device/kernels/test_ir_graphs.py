# tests/device/kernels/test_ir_graphs.py: graphs of the IR, each for one idea of code generation, in the forms for CPUs and for GPUs.
"""The option check compares each launch with the interpreter, so these tests have no expected values. Every scalar op and
every reduction of the tables is run, too."""

import re

import pytest
import torch

from torch_ocl_compile import _C, config
from torch_ocl_compile._C import ir
from torch_ocl_compile.compile import check
from torch_ocl_compile.dtypes import IR_DTYPES, TORCH_DTYPES
from torch_ocl_compile.errors import UnsupportedError
from torch_ocl_compile.reference import philox

FAMILIES = pytest.mark.parametrize("family", ["item", "group"])
EVERY = pytest.mark.sampled(first=6, every=24)


def with_results(text):
    """Returns a graph whose results are the buffers buf*."""
    buffers = re.findall(r"^buffer (b\d+) buf\d+ \w+ (\[.*?\]) strides (\[.*?\])", text, re.M)
    return ir.parse_graph(
        text + "".join(f"result {b} {sizes} strides {strides} offset 0\n" for b, sizes, strides in buffers)
    )


def inputs(graph, sizes, low, high):
    generator = torch.Generator().manual_seed(11)
    symbols = {f"s{k}": n for k, n in enumerate(sizes)}
    for b in graph.inputs:
        buffer = graph.buffers[b]
        dtype, shape = TORCH_DTYPES[buffer.dtype], [ir.evaluate(s, symbols) for s in buffer.sizes]
        x = low + (high - low) * torch.rand(shape, generator=generator)
        if dtype is torch.uint8:
            x = x.abs() * 40
        elif not dtype.is_floating_point:
            x = x > (low + high) / 2 if dtype is torch.bool else (x * 3).floor()
        strides = [ir.evaluate(s, symbols) for s in buffer.strides]
        yield x.to(dtype).as_strided(shape, x.stride()), strides


def run(device, graph, family="item", sizes=(), low=-2.0, high=2.0, **options):
    """Runs a graph with the option check. Returns the plan, the results and the schedule's line for each launch."""
    config.configure_core()
    check.install()
    settings = {**config.compile_options(None), "kernel_family": family, "check": True, "verify": True, **options}
    plan = _C.exec.compile(graph, torch.device(device).index, [], settings)
    given = [
        torch.empty_strided(x.shape, strides, dtype=x.dtype).copy_(x) for x, strides in inputs(graph, sizes, low, high)
    ]
    results = plan.run([*sizes, *(x.to(device) for x in given)])
    return plan, results, re.findall(r"^ *group.*?: (.*)", plan.schedule(), re.M)


WITH_POLES = ("digamma", "trigamma")  # at 0 and the negative integers


@FAMILIES
@pytest.mark.sampled(first=12, every=24)
@pytest.mark.parametrize("dtype", IR_DTYPES, ids=str)
def test_every_scalar_op(ocl_device, family, dtype):
    """Eight ops a graph, because a graph of all would take the driver's compiler long. Recurrences of a large degree overflow on
    the way, and integers here are large. Close to a pole, the reference is not exact either."""
    rows = [row for row in ir.ops() if not row.name.startswith("philox") and row.name not in WITH_POLES]
    if not dtype.is_floating_point:
        rows = [row for row in rows if row.error.kind != ir.OpErrorKind.k_recurrence]
    groups = [(rows[start : start + 8], -2.0) for start in range(0, len(rows), 8)]
    groups.append(([row for row in ir.ops() if row.name in WITH_POLES], 0.4))
    for group, low in groups:
        builder = ir.Builder()
        x, y, z = (builder.input(IR_DTYPES[dtype], [333], [1]) for _ in range(3))
        taken = 0
        for row in group:
            try:
                result = builder.op(row.name, [x, y, z][: row.arity])
            except UnsupportedError:
                continue
            builder.output(result, [])
            taken += 1
        if taken:
            run(ocl_device, builder.finish(), family, low=low)


MAPS = {
    "broadcasts, transposed and reversed reads, a symbolic size": """symbol s0 1..4096 divisor 1
buffer b0 in0 f32 [s0, 37] strides [37, 1] input 0
buffer b1 in1 f32 [37] strides [1] input 1
buffer b2 in2 f32 [] strides [] input 2
buffer b3 in3 f32 [37, s0] strides [s0, 1] input 3
buffer b4 buf4 f32 [s0, 37] strides [37, 1]
buffer b5 t5 f32 [s0, 37]
inputs b0 b1 b2 b3
node map [s0, 37]
  v0 = load f32 b0[i0, i1]
  v1 = load f32 b1[i1]
  v2 = load f32 b2[]
  v3 = add f32 v0 v1
  v4 = mul f32 v3 v2
  store b5[i0, i1] = v4
node map [s0, 37]
  v0 = load f32 b5[i0, i1]
  v1 = load f32 b3[i1, i0]
  v2 = load f32 b0[i0, 36 - i1]
  v3 = sub f32 v0 v1
  v4 = maximum f32 v3 v2
  v5 = constant f32 -0.5
  v6 = mul f32 v4 v5
  store b4[i0, i1] = v6
""",
    "masks: uniform, per lane, along a padded row": """buffer b0 in0 f32 [9, 40] strides [40, 1] input 0
buffer b1 buf1 f32 [11, 44] strides [44, 1]
buffer b2 buf2 f32 [11, 44] strides [44, 1]
inputs b0
node map [11, 44]
  v0 = index i64 i0 - 1
  v1 = constant i64 0
  v2 = ge bool v0 v1
  v3 = constant i64 9
  v4 = lt bool v0 v3
  v5 = logical_and bool v2 v4
  v6 = index i64 i1 - 2
  v7 = ge bool v6 v1
  v8 = constant i64 40
  v9 = lt bool v6 v8
  v10 = logical_and bool v7 v9
  v11 = logical_and bool v5 v10
  v12 = load f32 b0[i0 - 1, i1 - 2] if v11
  v13 = load f32 b0[i0 - 1, 3] if v5
  v14 = load f32 b0[i0 - 1, 39 - i1 % 40] if v11
  v15 = add f32 v12 v13
  v16 = add f32 v15 v14
  store b1[i0, i1] = v16
  v17 = load f32 b0[i0 // 2, 1] if v10
  v18 = where f32 v10 v17 v16
  store b2[i0, i1] = v18
""",
    "stores under masks, and the larger of two": """buffer b0 in0 i64 [50] strides [1] input 0
buffer b1 in1 f32 [50, 33] strides [33, 1] input 1
buffer b2 buf2 f32 [50, 33] strides [33, 1]
buffer b3 buf3 f32 [50, 66] strides [66, 1]
buffer b4 buf4 i32 [7] strides [1]
buffer b5 buf5 f32 [50, 33] strides [33, 1]
inputs b0 b1
node map [7]
  v0 = constant i32 0
  store b4[i0] = v0
node map [50, 33]
  v0 = load i64 b0[i0]
  v1 = constant i64 4
  v2 = ge bool v0 v1
  v3 = load f32 b1[i0, i1]
  v4 = constant f32 0.0
  v5 = gt bool v3 v4
  v6 = logical_and bool v2 v5
  v7 = index i32 i0*33 + i1
  v8 = index i64 (i0*5 + i1*3) % 7
  store b2[i0, i1] = v3 if v2
  store b5[i0, 32 - i1] = v3 if v5
  store b3[i0, i1*2] = v3 if v6
  store b4[v8] maximum= v7 if v5
""",
    "gather by a value, strided stores": """buffer b0 in0 i64 [50] strides [1] input 0
buffer b1 in1 f32 [70, 33] strides [33, 1] input 1
buffer b2 buf2 f32 [50, 33] strides [33, 1]
buffer b3 buf3 f32 [33, 50] strides [1, 33]
buffer b4 buf4 f32 [50, 66] strides [66, 1]
inputs b0 b1
node map [50, 33]
  v0 = load i64 b0[i0]
  v1 = constant i64 10
  v2 = add i64 v0 v1
  v3 = load f32 b1[v2, i1]
  store b2[i0, i1] = v3
  store b3[i1, i0] = v3
  store b4[i0, i1*2] = v3
""",
    "gather of 16-bit numbers": """buffer b0 in0 i64 [500] strides [1] input 0
buffer b1 in1 f16 [70] strides [1] input 1
buffer b2 buf2 f16 [500] strides [1]
inputs b0 b1
node map [500]
  v0 = load i64 b0[i0]
  v1 = constant i64 10
  v2 = add i64 v0 v1
  v3 = load f32 b1[v2]
  store b2[499 - i0] = v3
""",
    "casts and choices between sizes": """buffer b0 in0 f32 [100] strides [1] input 0
buffer b1 in1 TYPE [100] strides [1] input 1
buffer b2 buf2 TYPE [100] strides [1]
buffer b3 buf3 bool [100] strides [1]
buffer b4 buf4 f32 [100] strides [1]
inputs b0 b1
node map [100]
  v0 = load f32 b0[i0]
  v1 = abs f32 v0
  v2 = load HELD b1[i0]
  v3 = cast TYPE v1
  v4 = cast f32 v2
  v5 = lt bool v4 v0
  v6 = where HELD v5 v3 v2
  store b2[i0] = v6
  v7 = eq bool v3 v2
  store b3[i0] = v7
  v8 = cast f32 v3
  store b4[i0] = v8
""",
}


@FAMILIES
@EVERY
@pytest.mark.parametrize("vector_floats", [0, 4])
@pytest.mark.parametrize("name", MAPS)
def test_maps(ocl_device, family, name, vector_floats):
    text = MAPS[name]
    sizes = [61] if "symbol" in text else []
    types = ["f32", "f64", "i32", "i64", "i16", "i8", "u8", "f16", "bf16"] if "TYPE" in text else ["f32"]
    for t in types:
        graph = with_results(text.replace("TYPE", t).replace("HELD", "f32" if t in ("f16", "bf16") else t))
        launches = run(ocl_device, graph, family, sizes, vector_floats=vector_floats)[2]
        assert any(line.startswith("loops pointwise") for line in launches), launches


def reduction(name, source, rows, columns, transposed):
    """Returns a graph that reduces each row of a matrix, which may lie in memory transposed."""
    builder = ir.Builder()
    sizes = [columns, rows] if transposed else [rows, columns]
    x = builder.input(source, sizes, [sizes[1], 1])
    for result in builder.reduce(name, x, [0 if transposed else 1], False):
        builder.output(result, [])
    return builder.finish()


F32 = ("sum", "max", "min", "argmax", "argmin", "welford", "softmax")
SIZES = ((33, 257), (5, 5000), (1, 1), (64, 3000))
# dtype of the elements -> (reduction, rows, columns).
REDUCED = {
    "f32": [(name, *sizes) for name in F32 for sizes in SIZES],
    "i32": [("sum", 33, 257), ("max", 5, 5000), ("prod", 33, 7)],
    "bool": [("any", 33, 257), ("all", 70, 10), ("sum", 70, 10)],
    "bf16": [("sum", 33, 257), ("welford", 5, 5000)],
    "f64": [("prod", 20, 30), ("argmax", 20, 300), ("welford", 33, 257)],
    "i8": [("argmin", 20, 300)],
}


@FAMILIES
@EVERY
@pytest.mark.parametrize("transposed", [False, True], ids=["rows", "columns"])
@pytest.mark.parametrize("dtype", REDUCED)
def test_every_reduction(ocl_device, family, dtype, transposed):
    source = next(d for d in TORCH_DTYPES if str(d).lower() == f"dtype.k{dtype}")
    strategies = set()
    for name, rows, columns in REDUCED[dtype]:
        launches = run(ocl_device, reduction(name, source, rows, columns, transposed), family)[2]
        strategies |= {line.split()[1] for line in launches if line.startswith("loops")}
    assert {"row", "column", "sequential"} & strategies, strategies


def test_all_reductions_are_here():
    in_loops = {"last_max", "last_min", "twosum", "softmax_twosum", "complex_prod"}
    assert {row.name for row in ir.reductions()} == in_loops | {case[0] for cases in REDUCED.values() for case in cases}


LOOPS = {
    "a scan of columns that starts afresh": """buffer b0 in0 f32 [40, 33] strides [33, 1] input 0
buffer b1 in1 bool [40, 33] strides [33, 1] input 1
buffer b2 buf2 f32 [40, 33] strides [33, 1]
buffer b3 buf3 f32 [40, 33] strides [33, 1]
inputs b0 b1
node scan twosum whole [33] over [40]
  v0 = load f32 b0[r0, i0]
  v1 = load bool b1[r0, i0]
  v2 = constant f32 0.5
  v3 = gt bool v0 v2
  reduce v0 reset v3
  store b2[r0, i0] = result 0
  store b3[39 - r0, i0] = result 0 if v1
""",
    "the last maximum so far": """buffer b0 in0 f16 [40, 33] strides [33, 1] input 0
buffer b1 buf1 f16 [40, 33] strides [33, 1]
buffer b2 buf2 i64 [40, 33] strides [33, 1]
inputs b0
node scan last_max whole [40] over [33]
  v0 = load f32 b0[i0, r0]
  v1 = floor f32 v0
  v2 = index i64 r0
  reduce v1 v2
  store b1[i0, r0] = result 0
  store b2[i0, r0] = result 1
""",
    "a scan of exponentials": """buffer b0 in0 f32 [40, 33] strides [33, 1] input 0
buffer b1 buf1 f32 [40, 33] strides [33, 1]
buffer b2 buf2 f32 [40, 33] strides [33, 1]
inputs b0
node scan softmax_twosum whole [33] over [40]
  v0 = load f32 b0[r0, i0]
  reduce v0
  store b1[r0, i0] = result 0
  store b2[r0, i0] = result 1
""",
    "results of reductions in later phases": """symbol s0 1..4096 divisor 1
buffer b0 in0 f32 [s0, 203] strides [203, 1] input 0
buffer b1 t1 f32 [s0]
buffer b2 t2 f32 [s0, 203]
buffer b3 buf3 f32 [s0] strides [1]
buffer b4 buf4 f32 [s0, 203] strides [203, 1]
buffer b5 t5 f32 [s0]
inputs b0
node reduce max whole [s0] over [203]
  v0 = load f32 b0[i0, r0]
  reduce v0
  store b1[i0] = result 0
node map [s0, 203]
  v0 = load f32 b0[i0, i1]
  v1 = load f32 b1[i0]
  v2 = sub f32 v0 v1
  v3 = exp f32 v2
  store b2[i0, i1] = v3
node reduce sum whole [s0] over [203]
  v0 = load f32 b2[i0, r0]
  reduce v0
  store b3[i0] = result 0
node map [s0]
  v0 = load f32 b3[i0]
  v1 = reciprocal f32 v0
  store b5[i0] = v1
node map [s0, 203]
  v0 = load f32 b2[i0, i1]
  v1 = load f32 b5[i0]
  v2 = mul f32 v0 v1
  store b4[i0, i1] = v2
""",
    "pooling windows": """buffer b0 in0 f32 [2, 15, 15, 24] strides [5400, 360, 24, 1] input 0
buffer b1 buf1 f32 [2, 7, 7, 24] strides [1176, 168, 24, 1]
inputs b0
node reduce max whole [2, 7, 7, 24] over [3, 3]
  v0 = load f32 b0[i0, i1*2 + r0, i2*2 + r1, i3]
  reduce v0
  store b1[i0, i1, i2, i3] = result 0
""",
    "a sum over three loops": """buffer b0 in0 f32 [6, 40, 7, 50] strides [14000, 350, 50, 1] input 0
buffer b1 buf1 f32 [50] strides [1]
inputs b0
node reduce sum whole [50] over [6, 40, 7]
  v0 = load f32 b0[r0, r1, r2, i0]
  reduce v0
  store b1[i0] = result 0
""",
    "two reductions of one loop": """buffer b0 in0 f32 [6, 40, 70] strides [2800, 70, 1] input 0
buffer b1 buf1 f32 [40] strides [1]
buffer b2 buf2 f32 [40] strides [1]
inputs b0
node reduce sum whole [40] over [6, 70]
  v0 = load f32 b0[r0, i0, r1]
  reduce v0
  store b1[i0] = result 0
node reduce welford whole [40] over [6, 70]
  v0 = load f32 b0[r0, i0, r1]
  reduce v0
  store b2[i0] = result 1
""",
    "products of complex numbers": """buffer b0 in0 f32 [33, 40, 2] strides [80, 2, 1] input 0
buffer b1 buf1 f32 [33] strides [1]
buffer b2 buf2 f32 [33] strides [1]
buffer b3 buf3 f32 [40] strides [1]
inputs b0
node reduce complex_prod whole [33] over [40]
  v0 = load f32 b0[i0, r0, 0]
  v1 = load f32 b0[i0, r0, 1]
  reduce v0 v1
  store b1[i0] = result 0
  store b2[i0] = result 1
node reduce complex_prod whole [40] over [33]
  v0 = load f32 b0[r0, i0, 0]
  v1 = load f32 b0[r0, i0, 1]
  reduce v0 v1
  store b3[i0] = result 1
""",
    "a sum of everything": """buffer b0 in0 f32 [5000] strides [1] input 0
buffer b1 buf1 f32 [] strides []
inputs b0
node reduce sum whole [] over [5000]
  v0 = load f32 b0[r0]
  reduce v0
  store b1[] = result 0
""",
}


@FAMILIES
@EVERY
@pytest.mark.parametrize("name", LOOPS)
def test_reductions_and_scans(ocl_device, family, name):
    for vector_floats in (0, 4):
        run(
            ocl_device,
            with_results(LOOPS[name]),
            family,
            [37] if "symbol" in LOOPS[name] else [],
            vector_floats=vector_floats,
        )


@FAMILIES
@EVERY
def test_a_batch_is_one_launch(ocl_device, family):
    """Members of one text share a function. So do ordered sums of one length, beside others and a pointwise member."""
    updates, sums = ir.Builder(), ir.Builder()
    for n in (5, 1000, 40000, 16, 333):
        p, g = (updates.input(ir.DType.kF32, [n], [1]) for _ in range(2))
        step = updates.op("mul", [g, updates.constant(0.1, ir.DType.kF32)])
        updates.output(updates.op("sub" if n == 333 else "add", [p, step]), [])
    for parts, n in ((8, 700), (59, 5), (8, 40000), (3, 333), (1, 99)):
        x = sums.input(ir.DType.kF32, [parts, n], [n, 1])
        sums.output(sums.op("exp", [x]) if parts == 1 else sums.reduce("sum", x, [0], False)[0], [])
    for builder in (updates, sums):
        assert run(ocl_device, builder.finish(), family)[0].launch_count == 1


@FAMILIES
@EVERY
@pytest.mark.parametrize("m, n, k", [(7, 5, 3), (37, 130, 70), (64, 64, 64)])
def test_a_contraction_with_bias_and_activation(ocl_device, family, m, n, k):
    builder = ir.Builder()
    a = builder.input(ir.DType.kF32, [1, m, k], [m * k, k, 1])
    b = builder.input(ir.DType.kF32, [1, k, n], [k * n, 1, k], True)
    bias = builder.input(ir.DType.kF32, [n], [1])
    product = builder.contract(a, b, ir.DType.kF32)
    builder.output(builder.op("tanh", [builder.op("add", [product, bias])]), [])
    run(ocl_device, builder.finish(), family, low=-1.0, high=1.0)


@FAMILIES
@EVERY
def test_philox_gives_the_published_numbers(ocl_device, family):
    """Random123's known answer for counter 0 and key 0 begins with the words 6627e8d5 and e169c58d."""
    builder = ir.Builder()
    zero = builder.constant(0, ir.DType.kI64, [33])
    index = builder.iota([33], ir.IndexExpr.loop(0), ir.DType.kI64)
    for name in ("philox_bits", "philox_lane", "philox_normal"):
        builder.output(builder.op(name, [zero, zero, index]), [])
    bits, uniform, _ = run(ocl_device, builder.finish(), family)[1]
    assert bits[0].item() & (2**64 - 1) == 0xE169C58D6627E8D5
    assert uniform[0].item() == 0x6627E8 / 2**24
    assert torch.equal(bits.cpu(), philox.philox_bits(0, 0, [33]))
    assert torch.equal(uniform.cpu(), philox.philox_uniform(0, 0, [33]))

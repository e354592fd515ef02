# tests/device/tools/test_profiler.py: torch.profiler shows kernels, copies and waits: names, times, arrows, sums.
import re
import threading
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function

from tests.device.tools.profiling import BOTH, ON_DEVICE, Trace, end, profiled

pytestmark = pytest.mark.skipif(not torch.profiler.kineto_available(), reason="this torch was built without Kineto")

HERE = Path(__file__).name
SLACK = 300.0  # us: reading the device's clock takes until a thread wakes up, which is late on a busy machine


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 32, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(32)
        self.second = torch.nn.Conv2d(32, 32, 3, padding=1)
        self.last = torch.nn.Linear(32, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.second(x))
        return self.last(x.mean((2, 3)))


def training_step(device):
    torch.manual_seed(0)
    network = Network().to(device)
    compiled = torch.compile(network, backend="ocl")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    x, y = torch.randn(8, 3, 32, 32).to(device), torch.randint(0, 10, (8,)).to(device)

    def step():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(compiled(x), y).backward()
        optimizer.step()

    step()
    torch.ocl.synchronize(device)
    return step


def adder(device, size=1000):
    x = torch.ones(size).to(device)
    compiled = torch.compile(lambda t: t * 2 + 1, backend="ocl")
    compiled(x)
    torch.ocl.synchronize(device)
    return lambda: compiled(x)


def test_the_time_of_a_training_step_lies_in_named_kernels_with_lines_of_the_model(ocl_device):
    prof, trace = profiled(training_step(ocl_device))
    in_model = [e for e in trace.kernels if f"@ {HERE}:" in e["name"] and HERE in e["args"]["computes"]]
    on_device = trace.of(*ON_DEVICE)
    # What is left are the loss and the optimizer, outside of the compiled model. On a GPU they take a quarter of the time.
    assert all("@ aten::" in e["name"] for e in trace.kernels if e not in in_model)
    assert sum(e["dur"] for e in in_model) > 0.5 * sum(e["dur"] for e in on_device)
    averages = [e for e in prof.key_averages() if e.device_type == DeviceType.PrivateUse1 and not e.is_user_annotation]
    assert {e.key for e in averages} == {e["name"] for e in on_device}
    total = sum(e["dur"] for e in on_device)
    assert sum(e.self_device_time_total for e in averages) == pytest.approx(total, rel=0.01, abs=1)
    table = prof.key_averages().table(sort_by="self_device_time_total", max_name_column_width=100)
    assert re.search(rf"conv_\w+ 8x32x32x32 by 32x3x3 @ {HERE}:\d+, 151 MFLOP, \d\.\d\d MB: convolution", table)
    assert "Self OCL" in table


def test_every_command_has_an_arrow_from_the_call_that_enqueued_it(ocl_device):
    _, trace = profiled(training_step(ocl_device))
    starts = {e["id"]: e for e in trace.events if e["ph"] == "s" and e["cat"] == "ac2g"}
    ends = {e["id"]: e for e in trace.events if e["ph"] == "f" and e["cat"] == "ac2g"}
    commands = trace.of(*ON_DEVICE)
    assert len(commands) > 10 and len(starts) == len(ends) >= len(commands)
    for command in commands:
        call, number = trace.call_of(command), command["args"]["correlation"]
        assert (starts[number]["pid"], starts[number]["tid"]) == (call["pid"], call["tid"])
        assert call["ts"] - 0.01 <= starts[number]["ts"] <= end(call) + 0.01
        assert (ends[number]["pid"], ends[number]["tid"], ends[number]["ts"]) == (
            command["pid"],
            command["tid"],
            command["ts"],
        )
        assert command["ts"] >= call["ts"] - SLACK
        op = trace.op_of(command)
        assert op["ts"] <= call["ts"] and end(call) <= end(op) and op["tid"] == call["tid"]
    ranges = {trace.op_of(kernel)["name"] for kernel in trace.kernels}
    assert {re.sub(r"\d+", "N", name) for name in ranges if name.startswith("ocl ")} == {
        "ocl forward_N",
        "ocl backward_N",
    }


def test_what_a_kernel_does_is_told(ocl_device):
    a, b = torch.ones(24, 40).to(ocl_device), torch.ones(40, 56).to(ocl_device)
    compiled = torch.compile(lambda a, b: torch.relu(a @ b), backend="ocl")
    compiled(a, b)
    _, trace = profiled(lambda: compiled(a, b))
    (kernel,) = [k for k in trace.kernels if k["args"]["kind"] == "gemm"]
    assert re.fullmatch(rf"gemm 24x56x40 @ {HERE}:\d+, 1\d\d kFLOP, 18.2 kB: mm, relu", kernel["name"])
    args = kernel["args"]
    assert args["bytes"] == 4 * (24 * 40 + 40 * 56 + 24 * 56)
    assert args["flops"] == 2 * 24 * 40 * 56 + 24 * 56
    assert args["computes"].startswith("aten.mm.default, aten.relu.default (")
    assert args["GFLOP/s"] == pytest.approx(args["flops"] / kernel["dur"] / 1000, rel=0.01, abs=0.002)
    assert args["kernel"].startswith("gemm") and len(args["grid"]) == len(args["block"]) == 3
    assert kernel["pid"] == args["device"] == torch.device(ocl_device).index and kernel["tid"] == args["stream"] == 0


def test_sizes_of_attention_and_of_a_batch_of_products(ocl_device):
    q, k = torch.ones(2, 4, 16, 32).to(ocl_device), torch.ones(2, 4, 24, 32).to(ocl_device)
    attend = torch.compile(lambda q, k: torch.nn.functional.scaled_dot_product_attention(q, k, k), backend="ocl")
    multiply = torch.compile(lambda q, k: q @ k.transpose(2, 3), backend="ocl")
    attend(q, k), multiply(q, k)
    _, trace = profiled(lambda: (attend(q, k), multiply(q, k)))
    names = [kernel["name"] for kernel in trace.kernels]
    assert any(re.match(r"attention\w* 2x4x16x32 to 24 @ ", name) for name in names), names
    assert any(name.startswith("gemm 8x16x24x32 @ ") for name in names), names


def test_names_follow_changing_sizes(ocl_device):
    compiled = torch.compile(lambda t: t * 2 + 1, backend="ocl", dynamic=True)
    inputs = [torch.ones(size).to(ocl_device) for size in (1000, 3000, 1000)]
    for x in inputs:
        compiled(x)
    _, trace = profiled(lambda: [compiled(x) for x in inputs])
    names = [kernel["name"].split(" @ ")[0] for kernel in trace.kernels]
    assert names == ["pointwise 1000", "pointwise 3000", "pointwise 1000"]
    assert [kernel["args"]["bytes"] for kernel in trace.kernels] == [8000, 24000, 8000]


def test_a_model_without_code_of_its_own_has_names_of_modules(ocl_device):
    part = torch.nn.Sequential(torch.nn.Linear(24, 40), torch.nn.ReLU())
    model = torch.nn.Sequential(part, torch.nn.Linear(40, 56)).to(ocl_device)
    compiled = torch.compile(model, backend="ocl")
    x = torch.ones(8, 24).to(ocl_device)
    compiled(x).sum().backward()
    _, trace = profiled(lambda: compiled(x).sum().backward())
    titles = [k["name"] for k in trace.kernels if k["args"]["kind"] == "gemm"]
    assert titles[0].startswith("gemm 8x40x24 @ module 0.0 (Linear)")
    assert titles[1].startswith("gemm 8x56x40 @ module 1 (Linear), ")
    assert len(titles) > 3 and all("(Linear)" in title for title in titles)


def test_copies_and_fills_are_told(ocl_device):
    host = torch.ones(5000)

    def copies():
        x = host.to(ocl_device)
        y = torch.empty_like(x)
        y.copy_(x)
        y.zero_()
        y.reshape(50, 100).t().contiguous()
        y.cpu()

    copies()
    _, trace = profiled(copies)
    index = torch.device(ocl_device).index
    names = [(e["cat"], e["name"].split(" @")[0]) for e in trace.of(*ON_DEVICE)]
    assert [n for n in names if n[0] == "gpu_memcpy"] == [
        ("gpu_memcpy", "upload 20.0 kB"), ("gpu_memcpy", "copy 20.0 kB"), ("gpu_memcpy", "download 20.0 kB")]  # fmt: skip
    assert ("gpu_memset", "fill 20.0 kB") in names or ("kernel", "pointwise 5000") in names
    assert ("kernel", "copy 100x50") in names
    for e in trace.of("gpu_memcpy"):
        assert e["args"]["bytes"] == 20000 and e["pid"] == index
        assert trace.op_of(e)["name"] in ("aten::copy_", "aten::_to_copy", "aten::_copy_from")
    assert [c["name"] for c in trace.calls if "Buffer" in c["name"]][:2] == [
        "clEnqueueWriteBuffer",
        "clEnqueueCopyBuffer",
    ]


def test_waits_are_told(ocl_device):
    # The device works longer than the host enqueues, so that there is something to wait for.
    run = adder(ocl_device, 1 << (20 if torch.ocl.get_device_properties(ocl_device).is_cpu else 26))
    side = torch.Stream(ocl_device)

    def waits():
        for _ in range(20):
            run()
        side.wait_stream(torch.ocl.current_stream(ocl_device))
        with torch.ocl.stream(side):
            run()
        event = torch.Event(ocl_device)
        event.record(side)
        event.synchronize()
        torch.ocl.synchronize(ocl_device)

    prof, trace = profiled(waits)
    names = [c["name"] for c in trace.calls]
    assert "clFinish" in names and "clWaitForEvents" in names and "clEnqueueBarrierWithWaitList" in names
    waits = [e for e in trace.of("gpu_user_annotation") if e["name"] == "wait of a stream"]
    on_side = [k for k in trace.kernels if k["tid"] == side.stream_id]
    on_main = [k for k in trace.kernels if k["tid"] == 0]
    assert len(on_side) == 1 and len(on_main) == 20
    if not torch.ocl.get_device_properties(ocl_device).is_cpu:
        pytest.skip("the driver gives barriers no times, or times that are off by milliseconds")
    (wait,) = [w for w in waits if w["tid"] == side.stream_id]
    assert wait["ts"] <= end(on_main[-1]) + SLACK and end(on_main[-1]) <= end(wait) + SLACK
    assert end(wait) <= on_side[0]["ts"] + 0.01
    # Waits are not part of the device's time.
    total = sum(e.self_device_time_total for e in prof.key_averages() if e.device_type == DeviceType.PrivateUse1 and
                not e.is_user_annotation)  # fmt: skip
    assert total == pytest.approx(sum(e["dur"] for e in trace.of(*ON_DEVICE)), rel=0.01, abs=1)


def test_the_times_fit_between_those_of_the_host(ocl_device):
    run = adder(ocl_device, 1 << 20)

    def steps():
        for _ in range(5):
            run()
            torch.ocl.synchronize(ocl_device)

    _, trace = profiled(steps)
    finishes = [c for c in trace.calls if c["name"] == "clFinish"]
    assert len(trace.kernels) == 5 <= len(finishes)
    for kernel in trace.kernels:
        call = trace.call_of(kernel)
        finish = next(f for f in finishes if f["ts"] > call["ts"])
        assert call["ts"] - SLACK <= kernel["ts"] < end(kernel) <= end(finish) + SLACK
        assert 0 < kernel["dur"] <= end(finish) - call["ts"]


def test_ranges_of_the_program_nest(ocl_device):
    run = adder(ocl_device)

    def ranges():
        with record_function("outer"):
            run()
            with record_function("inner"):
                run()
                run()

    prof, trace = profiled(ranges)
    first, second, third = trace.kernels
    averages = {e.key: e for e in prof.key_averages() if e.device_type == DeviceType.CPU}
    durations = [k["dur"] for k in trace.kernels]
    assert averages["outer"].device_time_total == pytest.approx(sum(durations), abs=0.01)
    assert averages["inner"].device_time_total == pytest.approx(sum(durations[1:]), abs=0.01)
    on_device = {e["name"]: e for e in trace.of("gpu_user_annotation")}
    assert on_device["outer"]["ts"] == pytest.approx(first["ts"], abs=0.01)
    assert on_device["inner"]["ts"] == pytest.approx(second["ts"], abs=0.01)
    assert end(on_device["inner"]) == pytest.approx(end(third), abs=0.01)
    assert end(on_device["outer"]) == pytest.approx(end(third), abs=0.01)


def test_profiling_may_begin_and_end_in_the_middle_of_a_step(ocl_device):
    step = training_step(ocl_device)
    run = adder(ocl_device)
    network = torch.nn.Linear(16, 16).to(ocl_device)
    compiled = torch.compile(network, backend="ocl")
    x = torch.ones(4, 16).to(ocl_device)
    compiled(x).sum().backward()
    whole_step, _ = profiled(step)

    prof = profile(activities=BOTH)
    with record_function("begun before"):
        loss = compiled(x).sum()
        prof.start()
        loss.backward()
        run()
    with record_function("left open"):
        run()
        prof.stop()
        run()
    trace = Trace(prof)
    assert sum(k["name"].startswith("pointwise 1000 @") for k in trace.kernels) == 2
    assert not any(trace.op_of(k)["name"].startswith("ocl forward") for k in trace.kernels)
    assert any(trace.op_of(k)["name"].startswith("ocl backward") for k in trace.kernels)
    # Ranges that were open at the end of a session do not appear in the next one.
    again, trace = profiled(step)
    assert {e.key for e in again.events() if e.device_type == DeviceType.PrivateUse1} == {
        e.key for e in whole_step.events() if e.device_type == DeviceType.PrivateUse1}  # fmt: skip
    for kernel in trace.kernels:
        assert trace.op_of(kernel)["name"] not in ("begun before", "left open")


def test_a_schedule_with_several_cycles(ocl_device):
    run = adder(ocl_device)
    traces = []
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=3)
    ready = lambda prof: traces.append(Trace(prof))  # noqa: E731
    with profile(activities=BOTH, schedule=schedule, on_trace_ready=ready) as prof:
        for _ in range(14):
            run()
            torch.ocl.synchronize(ocl_device)
            prof.step()
    assert [len(trace.kernels) for trace in traces] == [2, 2, 2]
    last = [max(end(k) for k in trace.kernels) for trace in traces]
    first = [min(k["ts"] for k in trace.kernels) for trace in traces]
    assert last[0] < first[1] and last[1] < first[2]
    for cycle, trace in enumerate(traces):
        steps = [e["name"] for e in trace.of("gpu_user_annotation")]
        assert steps == [f"ProfilerStep#{4 * cycle + 2}", f"ProfilerStep#{4 * cycle + 3}"]


def test_two_threads_on_two_streams(ocl_device):
    sizes = {"small": 1000, "large": 1 << 16}
    compiled = {name: torch.compile(lambda t: t * 2 + 1, backend="ocl", dynamic=False) for name in sizes}
    inputs = {name: torch.ones(size).to(ocl_device) for name, size in sizes.items()}
    streams = {name: torch.Stream(ocl_device) for name in sizes}
    for name in sizes:
        torch._dynamo.reset()
        compiled[name](inputs[name])
    torch.ocl.synchronize(ocl_device)
    threads = {}
    both = threading.Barrier(2)

    def work(name):
        threads[name] = threading.get_native_id()
        with torch.ocl.stream(streams[name]):
            for _ in range(50):
                both.wait(60)
                with record_function(name):
                    compiled[name](inputs[name])

    def run():
        workers = [threading.Thread(target=work, args=(name,)) for name in sizes]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    every_thread = torch.profiler._ExperimentalConfig(profile_all_threads=True)
    _, trace = profiled(run, experimental_config=every_thread)
    for name, size in sizes.items():
        own = [k for k in trace.kernels if k["name"].startswith(f"pointwise {size} ")]
        assert len(own) == 50
        assert {k["tid"] for k in own} == {streams[name].stream_id}
        assert {trace.call_of(k)["tid"] for k in own} == {threads[name]}
        assert all(earlier["ts"] + earlier["dur"] <= later["ts"] + 0.01 for earlier, later in pairwise(own))
        ops = [trace.op_of(k) for k in own]
        assert {op["tid"] for op in ops} == {threads[name]} and len({op["ts"] for op in ops}) == 50
        on_device = [e for e in trace.of("gpu_user_annotation") if e["name"] == name]
        assert len(on_device) == 50 and {e["tid"] for e in on_device} == {streams[name].stream_id}


def test_a_session_without_the_device_records_nothing(ocl_device):
    prof, trace = profiled(adder(ocl_device), activities=[ProfilerActivity.CPU])
    assert not trace.kernels and not trace.calls
    assert any(e.key.startswith("ocl inference") for e in prof.key_averages())


def test_names_with_quotes_are_valid_json(ocl_device, tmp_path):
    script = tmp_path / 'a "model".py'
    script.write_text("def f(x):\n    return x * 2 + 1\n")
    scope = {}
    exec(compile(script.read_text(), str(script), "exec"), scope)
    compiled = torch.compile(scope["f"], backend="ocl")
    x = torch.ones(7).to(ocl_device)
    compiled(x)
    _, trace = profiled(lambda: compiled(x))
    (kernel,) = trace.kernels
    assert "\\" not in kernel["name"] and '"' not in kernel["name"]


def test_the_rows_of_the_trace_have_names(ocl_device):
    _, trace = profiled(adder(ocl_device))
    index = torch.device(ocl_device).index
    named = [
        (e["name"], e["args"]["name"])
        for e in trace.events
        if e["ph"] == "M" and e["pid"] == index and "name" in e["args"]
    ]
    device = f"ocl:{index} {torch.ocl.get_device_name(ocl_device)}"
    assert ("process_name", device) in named  # Kineto gives names to other processes, too.
    assert ("thread_name", f"stream 0 of {device}") in named


def test_ops_without_kineto_have_times_of_the_device(ocl_device):
    x = torch.ones(1 << 18).to(ocl_device)
    x.exp()
    with torch.ocl.device(ocl_device), torch.autograd.profiler.profile(use_device="ocl", use_kineto=False) as prof:
        x.exp()
    (op,) = [e for e in prof.key_averages() if e.key == "aten::exp"]
    assert op.device_time_total > 0

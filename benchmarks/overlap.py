# benchmarks/overlap.py: measures whether two compiled graphs on two streams run at the same time.
"""`python -m benchmarks.overlap --device ocl:0`

Each graph is a chain of scans over few rows, which leaves most of a GPU idle. The program prints times by the
device's clock: of each graph alone, of both graphs on one stream, and of both graphs on two streams.
"""

from __future__ import annotations

import functools

import torch

from benchmarks import turns
from benchmarks.harness.side import settings_in_effect


def chain(x: torch.Tensor) -> torch.Tensor:
    for _ in range(12):
        x = (x * 0.5).cumsum(-1).remainder(3)
    return x


def main() -> None:
    parser = turns.parser_of(__doc__, 15)
    parser.add_argument("--device", default="ocl:0")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--columns", type=int, default=200_000)
    given = parser.parse_args()
    file = turns.ResultFile("overlap", given)
    device = given.device
    torch.ocl.set_device(device)
    graphs = [torch.compile(chain, backend="ocl") for _ in range(2)]
    inputs = [torch.rand(given.rows, given.columns, device=device) for _ in range(2)]
    streams = [torch.Stream(device), torch.Stream(device)]
    for graph, x in zip(graphs, inputs, strict=True):
        graph(x)

    def time_of(which: list[int], on: list[int]) -> float:
        """Runs graph which[i] on stream on[i]. Returns the milliseconds from the first start to the last end."""
        torch.ocl.synchronize()
        start = torch.Event("ocl", enable_timing=True)
        start.record(streams[0])
        streams[1].wait_event(start)
        ends = []
        for k, stream in zip(which, on, strict=True):
            with torch.ocl.stream(streams[stream]):
                graphs[k](inputs[k])
                ends.append(torch.Event("ocl", enable_timing=True))
                ends[-1].record(streams[stream])
        torch.ocl.synchronize()
        return max(start.elapsed_time(end) for end in ends)

    cases = {"first": ([0], [0]), "second": ([1], [1]), "one stream": ([0, 1], [0, 0]), "two streams": ([0, 1], [0, 1])}
    medians = turns.medians({name: functools.partial(time_of, *case) for name, case in cases.items()}, given.rounds)
    for name, ms in medians.items():
        print(f"{name:12} {ms:8.3f} ms")
    print(f"two streams are {medians['one stream'] / medians['two streams']:.2f} times as fast as one")
    file.add({"side": "ocl", "ms": medians, "settings": settings_in_effect("ocl", torch.device(device), "highest")})


if __name__ == "__main__":
    main()

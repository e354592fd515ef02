# benchmarks/device_copies.py: rates of copies between two devices of one process: ocl, and CUDA where torch has it.
"""`python -m benchmarks.device_copies [--devices 0 1] [--save FILE]` prints one table. A row has a size and the GB/s of each side: of one
copy, from the call until both devices are done, and of eight copies in a row, whose streams are waited for at the end. The sides take
turns, and the medians count. `kernel` is one copy after a kernel on the source and before a kernel on the target: its time is that of
all three."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from benchmarks import turns
from benchmarks.harness.side import device_facts, settings_in_effect
from benchmarks.harness.timing import seconds_of, wait

IN_A_ROW = 8


def seconds(call: Callable[[], object], devices: list[torch.device]) -> float:
    def whole() -> None:
        call()
        wait(devices[1])

    wait(devices[1])
    return seconds_of(whole, devices[0])


def calls(devices: list[torch.device], size_bytes: int) -> dict[str, tuple[Callable[[], object], int]]:
    """Returns the measured functions by name, each with the number of copies that it makes."""
    first, second = devices
    torch.ones(1, device=first).to(second)  # Memory that is allocated later may be of another kind.
    source, target = (torch.ones(size_bytes // 4, device=device) for device in devices)

    def row() -> None:
        for _ in range(IN_A_ROW):
            target.copy_(source)

    def between_kernels() -> None:
        source.add_(1)
        target.copy_(source)
        target.add_(1)

    return {"alone": (lambda: target.copy_(source), 1), "row": (row, IN_A_ROW), "kernels": (between_kernels, 1)}


def main() -> None:
    parser = turns.parser_of(__doc__, 9)
    parser.add_argument("--devices", nargs=2, type=int, default=[0, 1], help="numbers of the source and the target")
    parser.add_argument("--sizes", nargs="+", type=int, default=[1, 8, 64, 256], help="in MiB")
    given = parser.parse_args()
    file = turns.ResultFile("copies", given)
    sides = ["ocl"] + (["cuda"] if torch.cuda.is_available() else [])
    devices = {side: [torch.device(side, number) for number in given.devices] for side in sides}
    for side in sides:
        direct = torch.get_device_module(side).can_device_access_peer(*given.devices)
        print(f"{side}: {'from device to device' if direct else 'through the host'}")
    print(f"{'copies':<10}{'MiB':>6}" + "".join(f"{side + ' ms':>12}{side + ' GB/s':>12}" for side in sides))
    for size in given.sizes:
        made = {side: calls(devices[side], size << 20) for side in sides}
        for name in made["ocl"]:
            medians = turns.medians(
                {side: functools.partial(seconds, made[side][name][0], devices[side]) for side in sides}, given.rounds
            )
            text = f"{name:<10}{size:>6}"
            for side in sides:
                copies = made[side][name][1]
                each = medians[side] / copies
                rate = (size << 20) / each / 1e9
                text += f"{each * 1e3:>12.3f}{rate:>12.2f}"
                settings = settings_in_effect("eager", devices[side][0], "highest") | device_facts(devices[side][0])
                file.add({"copies": name, "bytes": size << 20, "side": side, "ms": each * 1e3, "gbytes": rate,
                          "settings": settings})  # fmt: skip
            print(text, flush=True)


if __name__ == "__main__":
    main()

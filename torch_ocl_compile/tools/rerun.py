# torch_ocl_compile/tools/rerun.py: launches a saved kernel again whose results differed from the reference on the CPU.
from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from torch_ocl_compile import _C
from torch_ocl_compile.compile.check_report import difference


def run(folder: Path, device: int | None = None) -> bool:
    """Launches the kernel of `folder` with the saved memory, and prints how its results differ from the expected
    results and from the saved results. `device` is by default the device that had the same index when the folder was
    saved. The kernel's text is read from kernel.cl, which may be edited. Returns whether all results are as expected.
    BuildError or DeviceError if the launch fails.
    """
    launch: dict[str, Any] = torch.load(folder / "launch.pt", weights_only=True)
    results: list[dict[str, Any]] = torch.load(folder / "results.pt", weights_only=True)
    launch["text"] = (folder / "kernel.cl").read_text(encoding="utf-8")
    regions = [region.clone() for region in launch["regions"]]
    _C.exec.launch_alone(launch["device"] if device is None else device, launch, regions)
    fine = True
    for result in results:
        if result["layout"] is None:
            print(f"{result['name']}: not compared, because it is merged from partial results")
            continue
        region, start, sizes, strides, dtype = result["layout"]
        data = regions[region][start:]
        data = data[: len(data) // dtype.itemsize * dtype.itemsize].clone()
        got = data.view(dtype).as_strided(sizes, strides)
        found = difference(got, result["expected"], result["allowed"])
        again = torch.equal(got.nan_to_num() if dtype.is_floating_point else got, _numbers(result["got"]))
        print(f"{result['name']}: {'as expected' if found is None else found}")
        print(f"  {'the same values as in the saved run' if again else 'other values than in the saved run'}")
        fine = fine and found is None
    return fine


def _numbers(saved: torch.Tensor) -> torch.Tensor:
    return saved.nan_to_num() if saved.is_floating_point() else saved

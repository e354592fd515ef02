# tests/torch_distributed/rank.py: one process of one test. `python -m tests.torch_distributed.rank TEST RANK`.
from __future__ import annotations

import faulthandler
import multiprocessing
import os
import sys

import torch

SECONDS = 100


def main() -> None:
    test, rank = sys.argv[1], int(sys.argv[2])
    faulthandler.dump_traceback_later(SECONDS, exit=True)
    import torch_ocl_compile  # noqa: F401
    from tests.torch_distributed.suite import test_class

    torch.set_num_threads(1)
    case = test_class()
    case.rank = rank
    ours, theirs = multiprocessing.Pipe()
    # _run() needs a pipe, through which torch's test case would ask for tracebacks. Nothing is sent here.
    case._run(rank, test, os.environ["TEMP_DIR"] + "/store", theirs)
    ours.close()


if __name__ == "__main__":
    main()

# tests/no_device/commands/test_progress.py: the line on the terminal that says what a long compilation does.
import contextlib
import io
import sys
import time

import pytest

from torch_ocl_compile import config
from torch_ocl_compile.compile import progress


class Terminal(io.StringIO):
    is_terminal = True

    def isatty(self):
        return self.is_terminal


@contextlib.contextmanager
def terminal(is_terminal=True):
    """Stands for stderr within the block. It is no fixture, because pytest replaces stderr after fixtures are made."""
    made = Terminal()
    made.is_terminal = is_terminal
    with pytest.MonkeyPatch.context() as patch, config.override(progress=True):
        patch.setattr(progress, "FIRST_S", 0.05)
        patch.setattr(progress, "BETWEEN_S", 0.01)
        patch.setattr(sys, "stderr", made)
        yield made
        progress._end(None)


def wait_for(terminal, text):
    deadline = time.monotonic() + 10
    while text not in terminal.getvalue():
        assert time.monotonic() < deadline, terminal.getvalue()
        time.sleep(0.01)


def test_line_says_the_phase_and_is_removed():
    with terminal() as shown:
        progress._begin(None)
        with progress.phase("forward_0 is lowered"):
            wait_for(shown, "torch_ocl_compile: forward_0 is lowered")
        wait_for(shown, "torch_ocl_compile: PyTorch traces the model")
        progress._end(None)
        assert shown.getvalue().endswith("\r\033[K")


@pytest.mark.parametrize("case", ["quick", "another backend", "a log"])
def test_no_line(case):
    with terminal(is_terminal=case != "a log") as shown:
        progress._begin(None)
        if case == "quick":
            progress._end(None)
        with contextlib.nullcontext() if case == "another backend" else progress.phase("forward_0 is lowered"):
            time.sleep(0.2)
    assert shown.getvalue() == ""

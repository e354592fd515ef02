# tests/device/conftest.py: tests begin without what Dynamo compiled in tests before them.
import pytest
import torch


@pytest.fixture(autouse=True)
def nothing_is_compiled():
    """So a test counts its own compilations, and no guard of another test fails first."""
    torch._dynamo.reset()

# tests/torch_distributed/suite.py: torch's own test class for NCCL, with ocl in place of CUDA and NCCL.
"""torch's installed test file is read, and executed with the names of CUDA and NCCL replaced. No code is copied from
it."""

from __future__ import annotations

import importlib.util
import re
import sys
from types import ModuleType
from typing import Any

from torch.testing._internal import common_utils

NAMES = (
    (r"\btorch\.cuda\b(?!\.(?:nccl|amp)\b)", "torch.ocl"),
    (r"\.cuda\(", ".ocl("),
    (r"\bis_cuda\b", "is_ocl"),
    (r"([\"'])cuda\1", r"\1ocl\1"),
    (r"([\"'])cuda:", r"\1ocl:"),
    (r"([\"'])nccl\1", r"\1ocl\1"),
    (r"\bBackend\.NCCL\b", "Backend.OCL"),
    (r"\bProfilerActivity\.CUDA\b", "ProfilerActivity.PrivateUse1"),
)


def load(name: str) -> ModuleType:
    """Executes the source of a torch module with the names in NAMES replaced, and registers the result in
    sys.modules."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.origin is not None
    with open(spec.origin) as file:
        text = file.read()
    for pattern, ours in NAMES:
        text = re.sub(pattern, ours, text)
    module = ModuleType(name)
    module.__file__ = spec.origin
    module.__package__ = name.rpartition(".")[0]
    sys.modules[name] = module
    exec(compile(text, spec.origin, "exec", dont_inherit=True), module.__dict__)
    return module


def test_class() -> Any:
    """Returns the test case. The environment has BACKEND, WORLD_SIZE and TEMP_DIR."""
    common_utils.TEST_CUDA = True  # Decorators read this flag when the modules below are executed.
    common = load("torch.testing._internal.common_distributed")
    for features in common.DistTestCases.backend_feature.values():
        features.add("ocl")
    tests = load("torch.testing._internal.distributed.distributed_test")

    class TestOcl(tests.TestDistBackend, tests.DistributedTest._DistTestBase):  # type: ignore[misc, name-defined]
        pass

    return TestOcl


def test_names() -> list[str]:
    """Returns the tests that torch would run with NCCL."""
    case = test_class()
    found = sorted(name for name in dir(case) if name.startswith("test_"))
    return [name for name in found if not getattr(getattr(case, name), "__unittest_skip__", False)]

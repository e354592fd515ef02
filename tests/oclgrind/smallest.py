# tests/oclgrind/smallest.py: a pytest plugin that selects the smallest cases of each test of a single template.
from __future__ import annotations

import re
from typing import Any

# Test -> the parts of its ids that follow the device's name.
CASES = {
    "test_pack": r"\d-4",
    "test_convolution": r"\((1, 1, 1, 1|2, 2, 4, 4|1, 3, 3, 3), .*",
    "test_winograd": r"\((1, 1, 1, 1, 1|1, 1, 3, 3, 1), .*",
    "test_weight_gradient": r"\((1, 1, 1, 1|1, 3, 3, 3), .*",
    "test_winograd_weight_gradient": r"\(1, 16, 1, 1, .*",
    "test_packed_weight_gradient": r"\(1, 16, 1, 1, .*",
    "test_depthwise": r"\(1, 16, 1, 1, .*\)-4|\(1, 1, 3, 3, .*",
    "test_conv_forward": r"32x64-one-.*",
    "test_conv_data": r".*-one-.*",
    "test_conv_weight": r"64x64-one-.*",
}


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    def is_small(item: Any) -> bool:
        test, _, case = item.name.rstrip("]").partition("[Oclgrind-Oclgrind-")
        return test in CASES and re.fullmatch(CASES[test], case) is not None

    chosen = [item for item in items if is_small(item)]
    tests = {(item.path.name, item.originalname) for item in items if item.originalname in CASES}
    missing = tests - {(item.path.name, item.originalname) for item in chosen}
    missing |= {("any file", test) for test in CASES.keys() - {test for _, test in tests}}
    assert not missing, f"smallest.py selects no case of {sorted(missing)}"
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen

# tests/device/test_eager_conditions.py: eager ops whose traces decide something by a size or a float: few plans, right results.
from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from torch_ocl_compile import _C, config
from torch_ocl_compile.tuning import table


@pytest.fixture
def own_cache(tmp_path: Path) -> Any:
    """Gives the test an empty cache, and drops the plans in memory."""
    with config.override(cache_dir=str(tmp_path)):
        config.configure_core()
        table.forget()
        _C.forget_eager_plans()
        yield
    config.configure_core()
    table.forget()
    _C.forget_eager_plans()

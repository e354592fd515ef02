# tests/no_device/choices/test_profiles.py: the rows of csrc/kernels/profiles.def, and the page about them.

import pytest

from tests import written_pages
from torch_ocl_compile import _C, config
from torch_ocl_compile.errors import ConfigError

ROWS = {row["name"]: row for row in _C.profiles()}


def test_the_page_has_the_rows(on_page):
    on_page("profiles.md", written_pages.profile_table())


def test_sources():
    assert {row["source"] for row in ROWS.values()} == {"report", "family", "estimate"}


def test_names_are_unique():
    assert len(ROWS) == len(_C.profiles()) >= 13


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_limits_are_possible(row):
    assert row["max_group_size"] in (256, 512, 1024) and row["local_bytes"] % 1024 == 0
    assert row["least_granted"] in (32, 64, 128, row["max_group_size"])
    # OpenCL 1.2: at least a quarter of the memory in one buffer, and 1024 bytes of arguments.
    assert (
        row["total_memory"] / 4 <= row["max_alloc_bytes"] + 2**21
        or row["max_alloc_bytes"] >= 4095 << 20
        or (
            row["name"] == "adreno-740"  # its driver reports less
        )
    )
    assert row["max_alloc_bytes"] <= row["total_memory"] and row["max_kernel_arg_bytes"] >= 1024
    assert row["address_bits"] == 64 or row["total_memory"] < 2**32


def test_the_rows_differ_in_every_limit():
    for limit in ("max_group_size", "least_granted", "local_bytes", "local_is_global", "subgroup_sizes", "has_fp64", "has_fp16",
                  "max_kernel_arg_bytes", "address_bits", "unified_memory", "exact_division"):  # fmt: skip
        assert len({row[limit] for row in ROWS.values()}) > 1, limit


def test_an_unknown_name_lists_the_names():
    with pytest.raises(
        ConfigError, match=r"'mali' is no device profile; there are intel-uhd, .*mali-g78, .*nvidia-pascal"
    ):
        config.options()["profile"].parse("mali", "option 'profile'")

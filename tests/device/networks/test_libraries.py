# tests/device/networks/test_libraries.py: two programs of tests/libraries run here; the page has the table of the last `make libraries`.
import importlib

import pytest

from tests.device.networks.whole_models import import_models
from tests.libraries import __main__ as libraries
from tests.libraries.harness import row_of


@pytest.mark.parametrize("name", ["transformers", "timm"])
def test_a_program_is_right(name, ocl_device):
    import_models(name)
    row = row_of(importlib.import_module(f"tests.libraries.use_{name}"), ocl_device)
    assert row["right"] and row["fallbacks"] == [] and row["breaks"] == 0, row


def test_the_table_is_that_of_the_results():
    rows = libraries.rows_of_file()
    assert libraries.on_page(libraries.PAGE.read_text(encoding="utf-8")) == libraries.block(rows), (
        "python -m tests.libraries table"
    )
    assert {row["name"] for row in rows} <= set(libraries.names()) and all(row["when"] and row["torch"] for row in rows)

# tests/device/networks/test_libraries.py: four programs of tests/libraries run here; the page has the table of the last `make clients`.
import pytest

from tests.device.networks.whole_models import import_models
from tests.libraries import __main__ as libraries
from tests.libraries.harness import row_of


@pytest.mark.sampled(first=1, every=0)
@pytest.mark.parametrize("name", ["accelerate/loop", "lightning/trainer", "timm/optimizer_adamw", "transformers/gpt2"])
def test_a_program_is_right(name, ocl_device, monkeypatch):
    import_models(name.partition("/")[0])
    monkeypatch.setenv("ACCELERATE_TORCH_DEVICE", "cpu")  # accelerate's program sets it; afterwards it is as before.
    row = row_of(libraries.programs()[name], ocl_device)
    assert row["right"] and libraries.ops_of(row) == [] and row["compiled"]["breaks"] == 0, row


def test_the_table_is_that_of_the_results():
    rows = libraries.rows_of_file()
    assert libraries.on_page(libraries.PAGE.read_text(encoding="utf-8")) == libraries.block(rows), (
        "python -m tests.libraries table"
    )
    assert {row["name"] for row in rows} <= set(libraries.programs()) and all(
        row["when"] and row["torch"] for row in rows
    )

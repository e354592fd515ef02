# tests/null/test_config.py: the registry of options: parsing, precedence, errors, and its page in docs/.
from pathlib import Path

import pytest

from torch_ocl_compile import config
from torch_ocl_compile.errors import ConfigError

PAGE = Path(__file__).resolve().parents[2] / "docs" / "options.md"


def test_the_page_is_the_registry():
    assert config.table() in PAGE.read_text(), "docs/options.md is out of date: paste torch_ocl_compile.config.table()"


def test_precedence(monkeypatch):
    assert config.get("cache_size_mb") == 1024
    monkeypatch.setenv("TORCH_OCL_CACHE_SIZE_MB", "7")
    assert config.get("cache_size_mb") == 7
    with config.override(cache_size_mb=8):
        assert config.get("cache_size_mb") == 8
    assert config.get("cache_size_mb") == 7


def test_compile_options():
    values = config.compile_options({"fallback": "error", "verify": 1})
    assert values["fallback"] == "error" and values["verify"] is True and "devices" not in values


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: config.get("nonesuch"), "'nonesuch' is unknown; there are .*cache_dir"),
        (lambda: config.set("cache_size_mb", "much"), "option 'cache_size_mb': 'much' is not an integer"),
        (lambda: config.compile_options({"fallback": "maybe"}), "'fallback': 'maybe' is not one of 'eager', 'error'"),
        (lambda: config.compile_options({"devices": "0"}), "'devices' is unknown to the ocl backend"),
    ],
)
def test_errors_name_the_way_out(attempt, message):
    with pytest.raises(ConfigError, match=message):
        attempt()


def test_a_bad_variable_is_named(monkeypatch):
    monkeypatch.setenv("TORCH_OCL_WARN_FALLBACK", "perhaps")
    with pytest.raises(ConfigError, match="TORCH_OCL_WARN_FALLBACK: 'perhaps' is not a switch"):
        config.get("warn_fallback")

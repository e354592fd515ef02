# tests/no_device/commands/test_config.py: the registry of options: parsing, precedence, errors, and the page in docs/.

import pytest

from tests import written_pages
from torch_ocl_compile import config
from torch_ocl_compile.errors import ConfigError


@pytest.mark.parametrize(
    "table", [written_pages.option_table, written_pages.kernel_table], ids=lambda table: table.__name__
)
def test_the_page_is_the_registry(table, on_page):
    on_page("options.md", table())


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
        (lambda: config.compile_options({"devices": "0"}), "the ocl backend's option 'devices' is unknown"),
        (
            lambda: config.compile_options({"fallbak": "error"}),
            "'fallbak' is unknown; did you mean 'fallback'. There are check",
        ),
        (
            lambda: config.compile_options({"disable": "nonsense"}),
            "'disable': 'nonsense' is no execution level, operation or kernel; there are item, .*gemm_warpgroup",
        ),
        (lambda: config.compile_options({"disable": "warpgroup,wrap"}), "'disable': 'wrap' is no execution level"),
        (lambda: config.compile_options({"disable": "warp:int4"}), "'warp:int4' ends in no type"),
        (lambda: config.compile_options({"disable": "pack_item"}), "'pack_item' cannot be disabled"),
        (lambda: config.compile_options({"disable": "gemm_group:tf32"}), "'gemm_group:tf32' disables nothing"),
        (lambda: config.compile_options({"disable": "pack"}), "'pack' disables nothing"),
        (lambda: config.set("units", -1), "'units': -1 is less than 0"),
        (lambda: config.set("cache_size_mb", float("inf")), "'cache_size_mb': inf is not an integer"),
        (lambda: config.set("cache_size_mb", 2.5), "'cache_size_mb': 2.5 is not an integer"),
        (lambda: config.set("tune_deadline", "nan"), "'tune_deadline': 'nan' is not a number"),
        (lambda: config.set("autoload", "never"), "'autoload': 'never' comes too late.*\n.*TORCH_OCL_AUTOLOAD"),
        (lambda: config.override(devices="0").__enter__(), "'devices' holds from the start of the process"),
    ],
)
def test_errors_name_the_way_out(attempt, message):
    with pytest.raises(ConfigError, match=message):
        attempt()


def test_every_option_says_what_may_be_given():
    assert all(row.values() for row in config.options().values())


def test_names_to_disable(monkeypatch):
    """Spaces around names are ignored. The C++ core checks the names."""
    assert config.compile_options({"disable": " warpgroup, warp ,"})["disable"] == "warpgroup,warp"
    monkeypatch.setenv("TORCH_OCL_DISABLE", "nonsense")
    with pytest.raises(ConfigError, match="environment variable TORCH_OCL_DISABLE: 'nonsense' is no execution level"):
        config.get("disable")


def test_an_option_that_comes_too_late_keeps_its_value():
    before = config.get("autoload")
    with pytest.raises(ConfigError):
        config.set("autoload", "never" if before != "never" else "always")
    assert config.get("autoload") == before
    config.set("autoload", before)  # Setting the value that is already in force is allowed.


def test_followers_of_an_option_are_called(monkeypatch):
    told = []
    monkeypatch.setitem(config._FOLLOWERS, "tune_deadline", told.append)
    with config.override(tune_deadline=3):
        config.set("tune_deadline", 4)
    assert told == [3.0, 4.0, config.get("tune_deadline")]


def test_a_bad_variable_is_named(monkeypatch):
    monkeypatch.setenv("TORCH_OCL_WARN_FALLBACK", "perhaps")
    with pytest.raises(ConfigError, match="TORCH_OCL_WARN_FALLBACK: 'perhaps' is not a switch"):
        config.get("warn_fallback")

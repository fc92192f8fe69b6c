import sys
from pathlib import Path

import pytest
import typer

from lockpin_cli.up import proxy, read_flags
from lockpin_core.config import option_names

ROOT = Path(__file__).resolve().parent.parent.parent


def test_flags_become_the_proxys_options():
    start = proxy(9090, None, {"daily_usd": "10", "queue_wait": "0s"}, ROOT, {})

    assert start.arguments == (
        *(sys.executable, "-P", "-m", "lockpin_addons.up", "--port", "9090"),
        *("--set", "lockpin_daily_usd=10", "--set", "lockpin_queue_wait=0s"),
    )


def test_config_file_is_handed_on_with_its_whole_path():
    start = proxy(8080, Path("a/lockpin.yaml"), {}, ROOT, {})

    assert start.arguments[-1] == f"lockpin_config={Path.cwd()}/a/lockpin.yaml"


def test_checkout_comes_before_what_is_installed():
    start = proxy(8080, None, {}, ROOT, {"PYTHONPATH": "/mine", "HOME": "/h"})

    assert start.environment == {"PYTHONPATH": f"{ROOT}:{ROOT}/addons:/mine", "HOME": "/h"}


def test_installed_package_needs_no_path(tmp_path):
    assert proxy(8080, None, {}, tmp_path, {"HOME": "/h"}).environment == {"HOME": "/h"}


def test_every_scalar_of_the_configuration_is_a_flag():
    words = [word for name in option_names() for word in ("--" + name.replace("_", "-"), f"v{name}")]

    assert read_flags(words) == {name: f"v{name}" for name in option_names()}


@pytest.mark.parametrize("words", [["--daily-usd=10"], ["--daily-usd", "10"]])
def test_flag_is_read_in_both_spellings(words):
    assert read_flags(words) == {"daily_usd": "10"}


def test_value_may_hold_an_equals_sign_or_begin_with_a_dash():
    assert read_flags(["--ledger=sqlite:///a=b", "--daily-usd", "-3"]) == {"ledger": "sqlite:///a=b", "daily_usd": "-3"}


@pytest.mark.parametrize("words", [["--daily"], ["--set", "x=1"], ["-d", "3"], ["x"], ["--daily-usd"]])
def test_anything_else_is_wrong_use(words):
    with pytest.raises(typer.BadParameter):
        read_flags(words)


def test_help_lists_the_flags(lockpin):
    text = lockpin("up", "--help").stdout

    assert "--daily-usd VALUE" in text
    assert "queue.wait of lockpin.yaml" in text


def test_bad_price_stops_before_the_proxy_starts(lockpin, home):
    home.config("pricing:\n  m: {input_per_mtok: -1}\n")

    done = lockpin("up", "--port", "1")

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "-1" in done.stderr

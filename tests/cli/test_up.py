import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from lockpin_cli.up import SHOWN, check_port, proxy, read_flags
from lockpin_core.config import Config, Places, load, option_names, parse

ROOT = Path(__file__).resolve().parent.parent.parent


def test_flags_become_the_proxys_options():
    start = proxy(9090, None, {"daily_usd": "10", "queue_wait": "0s"}, ROOT, {})

    assert start.arguments == (
        *(sys.executable, "-P", "-m", "lockpin_addons.up", "--port", "9090"),
        *("--set", "lockpin_daily_usd=10", "--set", "lockpin_queue_wait=0s"),
    )


def test_another_address_is_handed_on():
    start = proxy(8080, None, {"mode": "team"}, ROOT, {}, host="0.0.0.0")

    assert start.arguments[3:] == (
        "lockpin_addons.up", "--port", "8080", "--host", "0.0.0.0", "--set", "lockpin_mode=team"
    )  # fmt: skip


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
    text = " ".join(lockpin("up", "--help").stdout.split())

    assert "--daily-usd USD daily_usd of lockpin.yaml; else 25" in text
    assert "--fit-floor TOKENS fit.floor of lockpin.yaml; else 4096" in text


def test_help_leaves_out_what_is_not_in_this_version(lockpin):
    shown = set(re.findall(r"--[a-z0-9-]+", lockpin("up", "--help").stdout))

    assert shown == {
        "--port",
        "--listen-host",
        "--config",
        "--help",
        *("--" + name.replace("_", "-") for name in SHOWN),
    }
    assert not shown & {"--on-fault", "--workers", "--estimates", "--subscription"}


def test_defaults_in_the_help_are_those_of_the_configuration():
    usual = Config(file=None, ledger=Path("unused"))

    assert SHOWN["daily_usd"][1] == usual.daily_usd.exact()
    assert (SHOWN["durability"][1], SHOWN["timezone"][1]) == (usual.durability, usual.timezone)
    assert SHOWN["task_default"][1] == usual.task.default
    assert (SHOWN["fit_output_max"][1], SHOWN["fit_floor"][1]) == (str(usual.fit.output_max), str(usual.fit.floor))
    assert SHOWN["max_request_mb"][1] == str(usual.max_request_mb)
    assert SHOWN["drain"][1] == f"{usual.drain_ms // 1000}s"
    assert (usual.charge_failed, usual.fit.output, usual.task.from_session) == (True, True, True)


@pytest.mark.parametrize("name", SHOWN)
def test_every_flag_in_the_help_takes_another_value(name):
    other = {
        "sqlite:///PATH": "sqlite:///a/b", "full|normal": "normal", "ZONE": "Asia/Tokyo", "true|false": "false",
        "NAME": "other", "solo|team": "team", "USD": "4.5", "MB": "7", "TOKENS": "5000", "DURATION": "5s",
        "auto|lockpin|provider": "provider", "off": "off", "RATIO": "0.5", "COUNT": "3", "task|key|both": "both",
        "ask|warn|stop|off": "warn",
    }  # fmt: skip

    found = load(None, options={name: other[SHOWN[name][0]]}, env={}, places=Places(*[Path("/nowhere")] * 3))

    assert found != load(None, env={}, places=Places(*[Path("/nowhere")] * 3))


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_port_in_use_is_one_line_with_a_free_one(lockpin, taken):
    done = lockpin("up", "--port", str(taken))

    assert (done.returncode, done.stdout) == (1, "")
    free = re.fullmatch(rf"lockpin: port {taken} is in use; start with: lockpin up --port (\d+)\n", done.stderr)
    assert free is not None
    assert int(free[1]) != taken
    check_port(int(free[1]))


def test_port_of_a_connection_that_has_ended_is_free():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        accepted, _ = listener.accept()
        accepted.close()  # the side that closes first keeps the port for a while
        client.close()

    check_port(port)


def test_bad_price_stops_before_the_proxy_starts(lockpin, home):
    home.config("pricing:\n  m: {input_per_mtok: -1}\n")

    done = lockpin("up", "--port", "1")

    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "-1" in done.stderr


def test_help_shows_of_flags_near_the_cap_what_holds_without_them():
    """Given just so, they change nothing."""
    last = list(SHOWN).index("refusal")
    told = {name: usual for name, (_, usual) in list(SHOWN.items())[last:] if name not in ("degrade", "breaker_usd")}

    assert parse(None, None, options=told) == parse(None, None)
    assert parse(None, None).near_cap.breaker.usd is None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--retry-attempts", "20"], '--retry-attempts is "20"; a whole number from 1 to 10 is allowed'),
        (["--breaker-window=0s"], '--breaker-window is "0s"; a duration from 1s to 24h is allowed'),
    ],
)
def test_a_flags_value_is_told_by_the_flag_as_typed(lockpin, words, said):
    done = lockpin("up", *words)

    assert (done.returncode, done.stderr.splitlines()) == (2, [f"lockpin: {said}; see `lockpin up --help`"])

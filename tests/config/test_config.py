import os
from pathlib import Path

import pytest

from lockpin_core.config import Config, Fit, Places, TaskKeys, Upstream, load, option_names, usual_places
from lockpin_core.errors import ConfigError
from lockpin_core.money import Money
from lockpin_core.windows import Window

# All scalars and sections as the documentation gives their defaults.
DEFAULTS = """\
mode: solo
ledger: sqlite
durability: full
timezone: UTC
daily_usd: 25
task: {default: default, budget_usd: null, alert_at: [0.75, 0.95], from_session: true}
pricing: {}
models: {}
subscription: list
budgets: []
refusal: auto
allow_uncapped: []
allow_hosts: []
upstreams: {}
fit: {output: true, output_max: 32000, floor: 4096}
degrade: {at: 0.80, output_floor: 256, trim: true, cache_5m: true}
landing: {calls: 0, max_output_tokens: 1024}
queue: {wait: 30s}
approvals: {wait: 120s}
breaker: {usd: null, window: 60s, cooldown: 5m, by: task}
loop: {repeats: 20, action: ask}
retry: {attempts: 1, base: 500ms, max: 20s, after_max: 30s}
fallbacks: {}
cheaper: {}
estimates: hold
hidden_input_tokens: 200000
max_estimated_output_tokens: 128000
hold_for: {background: 24h, batch: 48h}
charge_failed: true
on_fault: block
max_request_mb: 64
drain: 60s
keys: {}
oidc: null
alerts: []
include: []
"""


@pytest.fixture
def places(tmp_path: Path) -> Places:
    for name in ("here", "config", "data"):
        (tmp_path / name).mkdir()
    return Places(tmp_path / "here", tmp_path / "config", tmp_path / "data")


@pytest.fixture
def parse(places: Places):
    def parse(text: str, **options: str) -> Config:
        file = places.here / "lockpin.yaml"
        file.write_text(text, "utf-8")
        return load(file, options=options, env={}, places=places)

    return parse


@pytest.fixture
def refuse(parse, places: Places):
    def refuse(text: str, **options: str) -> str:
        with pytest.raises(ConfigError) as caught:
            parse(text, **options)
        assert "\n" not in str(caught.value)
        return str(caught.value).removeprefix(f"{places.here}/")

    return refuse


def test_no_file_is_needed(places: Places):
    config = load(None, env={}, places=places)

    assert config == Config(file=None, ledger=places.data / "ledger.sqlite3")
    assert config.daily_usd == Money.parse("25")


def test_documented_defaults_are_the_defaults(parse, places: Places):
    config = parse(DEFAULTS)

    assert config == Config(file=places.here / "lockpin.yaml", ledger=places.data / "ledger.sqlite3")


def test_each_place_wins_over_the_next(places: Places):
    def write(file: Path, usd: int) -> Path:
        file.write_text(f"daily_usd: {usd}")
        return file

    named, by_env = write(places.data / "named.yaml", 1), write(places.data / "env.yaml", 2)
    write(places.here / "lockpin.yaml", 3)
    write(places.config / "lockpin.yaml", 4)
    env = {"LOCKPIN_CONFIG": str(by_env)}

    assert load(named, env=env, places=places).daily_usd == Money.parse("1")
    assert load(None, env=env, places=places).daily_usd == Money.parse("2")
    assert load(None, env={}, places=places).daily_usd == Money.parse("3")
    (places.here / "lockpin.yaml").unlink()
    assert load(None, env={"LOCKPIN_CONFIG": ""}, places=places).daily_usd == Money.parse("4")


def test_named_file_that_is_missing_is_an_error(places: Places):
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read: No such file"):
        load(None, env={"LOCKPIN_CONFIG": "none.yaml"}, places=places)


def test_folder_in_place_of_the_file_is_an_error(places: Places):
    (places.here / "lockpin.yaml").mkdir()

    with pytest.raises(ConfigError, match="Is a directory"):
        load(None, env={}, places=places)


def test_pipe_or_device_in_place_of_the_file_is_an_error_and_nobody_waits(places: Places):
    os.mkfifo(places.here / "lockpin.yaml")  # nobody writes into it

    words = "is a pipe or a device; write the configuration to a file and name that"
    for file in (None, Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(ConfigError, match=rf"(lockpin\.yaml|zero|null): {words}"):
            load(file, env={}, places=places)


def test_file_of_more_than_16_mb_is_an_error(places: Places):
    file = places.here / "lockpin.yaml"
    with file.open("w") as opened:
        opened.truncate((16 << 20) + 1)

    with pytest.raises(ConfigError, match=r"lockpin\.yaml: is larger than 16 MB"):
        load(None, env={}, places=places)


def test_file_that_is_not_utf8_is_an_error_with_its_line(places: Places):
    (places.here / "lockpin.yaml").write_bytes(b"mode: solo\ntimezone: \xff\n")

    with pytest.raises(ConfigError, match=r"lockpin\.yaml:2: is not UTF-8"):
        load(None, env={}, places=places)


def test_byte_order_mark_is_no_part_of_the_first_key(places: Places):
    (places.here / "lockpin.yaml").write_bytes(b"\xef\xbb\xbfdaily_usd: 3\n")

    assert load(None, env={}, places=places).daily_usd == Money.parse("3")


def test_usual_places_are_named_after_the_program():
    assert {usual_places().config.name, usual_places().data.name} == {"lockpin"}


def test_values_are_read(parse):
    config = parse(
        """
durability: normal
timezone: Europe/Berlin
daily_usd: 0.10
task: {default: chores, budget_usd: "2.5", alert_at: [0.95, 0.50], from_session: false}
models: {azure: {my-deployment: gpt-5.5}}
refusal: lockpin
allow_uncapped: ["API.openai.com/v1/Videos*"]
upstreams: {"API.openai.com.": "http://127.0.0.1:9999", api.anthropic.com: "https://[::1]"}
fit: {output: false, output_max: 500, floor: 100}
queue: {wait: 0s}
hold_for: {background: 1h, batch: 29d}
charge_failed: false
max_request_mb: 8
drain: 10s
budgets:
  - {name: weeks, scope: machine, window: week, at: "06:00", limit_usd: 50}
  - {name: days, scope: machine, window: rolling, period: 48h, limit_tokens: 9}
"""
    )

    assert (config.durability, config.timezone, config.refusal) == ("normal", "Europe/Berlin", "lockpin")
    assert config.daily_usd == Money(100_000_000)
    assert config.task == TaskKeys("chores", Money(2_500_000_000), ("0.5", "0.95"), False)
    assert config.models == {"azure": {"my-deployment": "gpt-5.5"}}
    assert config.allow_uncapped == ("api.openai.com/v1/Videos*",)
    assert config.upstreams == {
        "api.openai.com": Upstream("http", "127.0.0.1", 9999),
        "api.anthropic.com": Upstream("https", "::1", 443),
    }
    assert config.fit == Fit(False, 500, 100)
    assert (config.queue_wait_ms, config.charge_failed, config.max_request_mb) == (0, False, 8)
    assert config.drain_ms == 10_000
    assert (config.hold_for_ms, config.hold_for_batch_ms) == (3_600_000, 29 * 86_400_000)
    assert [budget.window for budget in config.budgets] == [
        Window("week", "Europe/Berlin", 360),
        Window("rolling", "Europe/Berlin", period_ms=172_800_000),
    ]


def test_daily_limit_is_a_budget_of_the_machine(parse):
    daily, own = (
        parse("daily_usd: 7\ntimezone: Asia/Tokyo").all_budgets(),
        parse("task: {budget_usd: 2}").task_default(),
    )

    assert [(b.name, b.scope, b.window.kind, b.window.zone, b.limit, b.enforce) for b in daily] == [
        ("daily", "machine", "day", "Asia/Tokyo", Money.parse("7"), True)
    ]
    assert (own.name, own.scope, own.own, own.enforce, own.limit) == ("task", "task", True, True, Money.parse("2"))
    assert (own.window.kind, own.alert_at) == ("lifetime", ("0.75", "0.95"))


def test_a_team_has_no_daily_limit_but_one_that_is_asked_for(parse):
    assert parse("mode: team").all_budgets() == ()
    assert parse("mode: team\ndaily_usd: 7").all_budgets() == parse("daily_usd: 7").all_budgets()
    assert parse("", mode="team").daily_usd is None


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("[]", ()), ("", ()), ("[GitHub.com., '*.gitlab.com']", ("github.com", "*.gitlab.com")),
        ("['10.0.0.1', '[FE80::0:1]']", ("10.0.0.1", "fe80::1")), ("[münchen.example]", ("xn--mnchen-3ya.example",)),
    ],
)  # fmt: skip
def test_hosts_of_a_team_are_read_in_their_one_form(parse, text, hosts):
    assert parse(f"mode: team\nallow_hosts: {text}").allow_hosts == hosts


@pytest.mark.parametrize("host", ["https://a.b", "a.b:443", "a b", "a.b/c", "", "..", "a..b", "a_b!"])
def test_what_is_no_host_is_an_error(refuse, host):
    assert refuse(f"mode: team\nallow_hosts: ['{host}']").startswith("lockpin.yaml:2: allow_hosts[0]")


def test_hosts_in_solo_mode_would_be_no_limit_and_are_an_error(refuse):
    assert refuse("allow_hosts: [github.com]") == (
        "lockpin.yaml:1: allow_hosts is for mode: team; solo mode tunnels to any host"
    )


def test_tokens_of_an_issuer_are_for_a_team_alone(parse, refuse):
    told = "oidc: {issuer: 'https://id.acme.example', audience: lockpin, claims: {user: sub}}"

    issuer = parse(f"mode: team\n{told}").oidc
    assert (issuer.url, issuer.audience, issuer.claims.user) == ("https://id.acme.example", "lockpin", "sub")
    assert parse("mode: team").oidc is None
    assert refuse(told) == "lockpin.yaml:1: oidc is for mode: team; in solo mode nobody is asked who calls"


def test_no_daily_limit_is_no_budget(parse):
    assert parse("daily_usd: null").all_budgets() == ()


def test_ledger_path_is_absolute(parse, refuse, places: Places):
    assert parse("ledger: sqlite:///var/lib/lockpin/l.db").ledger == Path("/var/lib/lockpin/l.db")
    assert parse("ledger: sqlite:////var/lib/l.db").ledger == Path("/var/lib/l.db")
    for wrong in ("sqlite://l.db", "sqlite:///", "l.db", "sqlite:///var/", "mysql://x"):
        assert "sqlite or sqlite:///absolute/path is allowed" in refuse(f"ledger: {wrong}")


def test_options_win_over_the_file(parse):
    config = parse(
        "daily_usd: 5\nqueue: {wait: 30s}\nfit: {floor: 10}\n",
        daily_usd="10",
        queue_wait="0s",
        fit_output="false",
        task_default="x",
    )

    assert (config.daily_usd, config.queue_wait_ms) == (Money.parse("10"), 0)
    assert config.fit == Fit(False, 32000, 10)
    assert config.task.default == "x"
    assert parse("", daily_usd="null").daily_usd is None


def test_option_wins_whatever_the_spelling_in_the_file(parse):
    assert parse("dailyUSD: 5\nmaxRequestMb: 2\n", daily_usd="6").daily_usd == Money.parse("6")


def test_option_does_not_reach_a_budget(parse):
    budgets = "budgets: [{name: a, scope: machine, window: day, limit_usd: 1, timezone: Asia/Tokyo}]"

    assert parse(budgets, timezone="Europe/Rome").budgets[0].window.zone == "Asia/Tokyo"


def test_options_are_checked_as_the_file_is(refuse):
    assert refuse("", daily_usd="-5") == 'option daily_usd is "-5"; a positive amount is allowed'
    assert refuse("", breaker_usd="-5") == 'option breaker_usd is "-5"; a positive amount is allowed'
    assert refuse("", queue_wiat="5s") == "option queue_wiat is not known; did you mean queue_wait?"
    assert refuse("", zzz="1").startswith("option zzz is not known; allowed are mode, ledger, ")
    assert refuse("degrade: off", degrade_at="5").startswith('option degrade_at is "5"; a share above 0')


def test_bad_value_in_the_file_is_an_error_also_below_an_option(refuse):
    assert refuse("daily_usd: x", daily_usd="1").startswith("lockpin.yaml:1: daily_usd")


def test_every_scalar_has_an_option():
    names = option_names()

    assert names["daily_usd"] == ("daily_usd",)
    assert names["fit_output_max"] == ("fit", "output_max")
    assert names["degrade"] == ("degrade",)
    assert len(names) == 41  # 14 at the top, `degrade`, 26 in sections
    assert not {"pricing", "budgets", "task_alert_at", "oidc"} & names.keys()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\ndaily_usd: -5", 'lockpin.yaml:3: daily_usd is "-5"; a positive amount is allowed'),
        ("daily_usd: 0", 'lockpin.yaml:1: daily_usd is "0"; a positive amount is allowed'),
        ("daily_usd: [1]", "lockpin.yaml:1: daily_usd is a list; a positive amount is allowed"),
        ("daily_usd: {}", "lockpin.yaml:1: daily_usd is a mapping; a positive amount is allowed"),
        ("daily_usd: .nan", 'lockpin.yaml:1: daily_usd is ".nan"; a positive amount is allowed'),
        ("daily_usd: .inf", 'lockpin.yaml:1: daily_usd is ".inf"; a positive amount is allowed'),
        ("timezone: Mars/Phobos", 'lockpin.yaml:1: timezone is "Mars/Phobos"; a time zone such as'),
        ("timezone: Europe", 'lockpin.yaml:1: timezone is "Europe"; a time zone such as'),
        ("timezone: ../etc", 'lockpin.yaml:1: timezone is "../etc"; a time zone such as'),
        ("timezone: null", "lockpin.yaml:1: timezone is null; a time zone such as"),
        ("durability: fast", 'lockpin.yaml:1: durability is "fast"; full or normal is allowed'),
        ("charge_failed: yes", 'lockpin.yaml:1: charge_failed is "yes"; true or false is allowed'),
        ('charge_failed: "true"', 'lockpin.yaml:1: charge_failed is "true"; true or false is allowed'),
        ("max_request_mb: 1.5", 'lockpin.yaml:1: max_request_mb is "1.5"; a whole number from 1 to 4096'),
        ("max_request_mb: 0", 'lockpin.yaml:1: max_request_mb is "0"; a whole number from 1 to 4096'),
        ("queue:\n  wait: 30", 'lockpin.yaml:2: queue.wait is "30"; a duration such as'),
        ("queue:\n  wait: -1s", 'lockpin.yaml:2: queue.wait is "-1s"; a duration such as'),
        ("task: hello", 'lockpin.yaml:1: task is "hello"; a mapping of default, budget_usd, '),
        ("task: {default: a/b}", 'lockpin.yaml:1: task.default is "a/b"; a name of 1 to 128'),
        ("task: {alert_at: 0.5}", 'lockpin.yaml:1: task.alert_at is "0.5"; a list, such as'),
        ("task: {alert_at: [80]}", 'lockpin.yaml:1: task.alert_at[0] is "80"; a share above 0 and up to 1'),
        ("task: {alert_at: [0]}", 'lockpin.yaml:1: task.alert_at[0] is "0"; a share above 0 and up to 1'),
        ("fit: {floor: 40000}", "lockpin.yaml:1: fit has a floor of 40000 above output_max of 32000"),
        ("DAILY_USD: 5", 'lockpin.yaml:1: DAILY_USD is "5", but there is no such key; did you mean daily_usd?'),
        ("daily_us: 5", 'lockpin.yaml:1: daily_us is "5", but there is no such key; did you mean daily_usd?'),
        ("mode: solo\nzzz: 5", 'lockpin.yaml:2: zzz is "5", but there is no such key; allowed are mode, ledger, '),
        (
            "fit:\n  outptu: true",
            'lockpin.yaml:2: fit.outptu is "true", but there is no such key; did you mean output?',
        ),
        ("daily_usd: 1\ndailyUSD: 2", 'lockpin.yaml:2: dailyUSD is "2", and line 1 says daily_usd too; one spelling'),
        ("models: {azure: gpt}", 'lockpin.yaml:1: models.azure is "gpt"; a mapping is allowed'),
        ("models: {azure: {a: [b]}}", "lockpin.yaml:1: models.azure.a is a list; a text is allowed"),
        ("allow_uncapped: [api.openai.com]", "lockpin.yaml:1: allow_uncapped[0] is"),
        ("allow_uncapped: ['https://api.openai.com/v1/videos']", "lockpin.yaml:1: allow_uncapped[0] is"),
        ("upstreams: {api.openai.com: 127.0.0.1:80}", "lockpin.yaml:1: upstreams.api.openai.com is"),
        ("upstreams: {api.openai.com: 'http://h/v1'}", "lockpin.yaml:1: upstreams.api.openai.com is"),
        ("upstreams: {api.openai.com: 'http://u:p@h'}", "lockpin.yaml:1: upstreams.api.openai.com is"),
        ("upstreams: {api.openai.com: 'http://h:99999'}", "lockpin.yaml:1: upstreams.api.openai.com is"),
        ("upstreams: {api.openai.com: 'http://:80'}", "lockpin.yaml:1: upstreams.api.openai.com is"),
        ("upstreams: {api.openai.com: 'ftp://h'}", "lockpin.yaml:1: upstreams.api.openai.com is"),
        ("upstreams: {'http://a': 'http://b'}", "lockpin.yaml:1: upstreams.http://a is no host"),
        ("upstreams:\n  a.b: http://c\n  A.b: http://d", "lockpin.yaml:3: upstreams.A.b names a host for the second"),
        ("mode: solo\n<<: {mode: solo}", "lockpin.yaml:2: << is a mapping, but there is no such key"),
    ],
)
def test_wrong_value_names_file_line_key_value_and_what_is_allowed(refuse, text: str, message: str):
    assert refuse(text).startswith(message)


@pytest.mark.parametrize(
    "amount", ["1e400", "1e-400", "1e9999999", "NaN", "Infinity", "0.0000000001", "1_000", "+5", "0x10"]
)
def test_amount_that_is_no_exact_money_is_an_error(refuse, amount: str):
    assert f'daily_usd is "{amount}"; a positive amount is allowed' in refuse(f"daily_usd: {amount}")


@pytest.mark.parametrize(
    "line",
    [
        "ledger: postgresql://db/lockpin",
        "subscription: free",
        "estimates: measured",
        "on_fault: allow",
        "hidden_input_tokens: 5",
        "max_estimated_output_tokens: 5",
        "alerts: ['mailto://me']",
    ],
)
def test_feature_that_is_not_built_is_an_error_and_not_ignored(refuse, line: str):
    message = refuse(f"\n{line}")

    assert message.startswith(f"lockpin.yaml:2: {line.split(':')[0]}")
    assert message.endswith("; that is not in this version")


@pytest.mark.parametrize(
    "line",
    [
        "hidden_input_tokens: 200000",
        "on_fault: block",
        "alerts:",
    ],
)
def test_feature_that_is_not_built_may_be_named_at_its_default_or_off(parse, line: str):
    assert parse(line).mode == "solo"


def test_feature_that_is_not_built_is_checked_for_its_type_first(refuse):
    assert refuse("hidden_input_tokens: x").endswith("a whole number of 0 or more is allowed")


def test_password_of_a_ledger_address_is_not_in_the_error(refuse):
    assert "hunter2" not in refuse("ledger: postgresql://me:hunter2@db/lockpin")
    assert "hunter2" not in refuse("upstreams: {a.b: 'http://me:hunter2@db'}")


@pytest.mark.parametrize(
    "key", ["daily_usd: ", "task: {budget_usd: ", "budgets: [{name: a, scope: task, window: day, limit_usd: "]
)
def test_a_limit_is_a_billion_at_most(parse, refuse, key):
    end = "}" * key.count("{") + "]" * key.count("[")

    assert parse(f"{key}1000000000{end}").file is not None
    assert refuse(f"{key}1000000000.000000001{end}").endswith(
        'is "1000000000.000000001"; a positive amount is allowed, up to a billion'
    )


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:", "http://:80", "http://", "http://:", "http://.", "http://a..b", "http://a b", "http://a/",
        "http://a/x", "http://a?x", "http://a#x", "http://me@a", "http://me:hunter2@a", "http://@a", "http://a:80:81",
        "http://a:0", "http://a:65536", "http://a:-1", "http://a:+1", "http://a:٣", "http://a%2eb", "http://[::1",
        "http://::1", "http://[127.0.0.1]", "http://[]:80", "http://127.0.0.256", "http://127.1", "http://a\\b",
        "HTTP://a", "ftp://a", "//a", "a:80", "http://" + "a" * 64, "http://" + "a." * 130 + "a",
    ],
)  # fmt: skip
def test_address_that_is_no_more_and_no_less_than_scheme_host_and_port_is_needed(refuse, address):
    message = refuse(f"upstreams: {{api.openai.com: '{address}'}}")

    assert message.startswith("lockpin.yaml:1: upstreams.api.openai.com is ")
    assert message.endswith("is allowed")
    assert "hunter2" not in message


@pytest.mark.parametrize(
    ("address", "is_read_as"),
    [
        ("http://127.0.0.1:9999", Upstream("http", "127.0.0.1", 9999)),
        ("https://[::1]", Upstream("https", "::1", 443)),
        ("http://[0:0::1]:81", Upstream("http", "::1", 81)),
        ("http://My_Host.local", Upstream("http", "my_host.local", 80)),
        ("https://bücher.example:65535", Upstream("https", "xn--bcher-kva.example", 65535)),
    ],
)
def test_address_of_an_upstream_is_read(parse, address, is_read_as):
    assert parse(f"upstreams: {{api.openai.com: '{address}'}}").upstreams == {"api.openai.com": is_read_as}


@pytest.mark.parametrize(
    "words",
    [
        "hunter2", "'hunter2'", "root:hunter2:0:0\nme:hunter2:1:1", "- hunter2", "!hunter2 x", "!hunter2 {mode: solo}",
        "*hunter2", "a: &hunter2 1\nb: &hunter2 2", "mode: *hunter2", "&hunter2 a: &hunter2 b", "!hunter2!x y",
        "password: hunter2", "key: hunter2", "hunter2: x\nhunter2: y", "api_key: !hunter2 x", "user: {hunter2: 1}",
        "machine a login b password hunter2", "{hunter2", "a: hunter2: b", '"hunter2\\q"', "PASSWORD=hunter2",
        "-----BEGIN KEY-----\nhunter2\n-----END KEY-----", "? [hunter2]\n: 1", "%hunter2\n---\na", "description: hunter2",
    ],
)  # fmt: skip
def test_no_word_of_a_file_that_is_no_configuration_is_repeated(refuse, words):
    message = refuse(words)

    assert message.startswith("lockpin.yaml:")
    assert "hunter2" not in message
    assert "allowed" in message or "not YAML" in message


@pytest.mark.parametrize("words", ["{}", "~", "---", "# nothing"])
def test_file_that_says_nothing_is_a_configuration(parse, words):
    assert parse(words).daily_usd == Money(25 * 10**9)


def test_key_of_a_feature_that_is_not_built_is_not_told_as_allowed(refuse):
    told = refuse("mode: solo\nzzz: 5")

    allowed = told.partition("allowed are ")[2].split(", ")
    assert {"daily_usd", "task", "budgets", "upstreams", "include"} <= set(allowed)
    assert not {"alerts", "hidden_input_tokens"} & set(allowed)

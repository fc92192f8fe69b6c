"""What the configuration says of calls near a limit, of those that fail, and of those that come too fast."""

import pytest

from lockpin_core.config import Config, Places, load
from lockpin_core.config_include import included_files
from lockpin_core.config_near_cap import Breaker, Degrade, Landing, Loop, NearCap, Retry
from lockpin_core.errors import ConfigError
from lockpin_core.money import Money


@pytest.fixture
def parse(tmp_path):
    folders = [tmp_path / name for name in ("here", "config", "data")]
    for folder in folders:
        folder.mkdir()
    places = Places(*folders)

    def parse(text: str, **options: str) -> Config:
        file = places.here / "lockpin.yaml"
        file.write_text(text, "utf-8")
        return load(file, options=options, env={}, places=places)

    return parse


@pytest.fixture
def refuse(parse, tmp_path):
    def refuse(text: str, **options: str) -> str:
        with pytest.raises(ConfigError) as caught:
            parse(text, **options)
        return str(caught.value).removeprefix(f"{tmp_path}/here/")

    return refuse


def test_defaults_are_those_of_no_file(parse):
    assert parse("").near_cap == NearCap(
        degrade=Degrade(True, "0.8", 256, True, True),
        landing=Landing(0, 1024),
        approvals_wait_ms=120_000,
        breaker=Breaker(None, 60_000, 300_000, "task"),
        loop=Loop(20, "ask"),
        retry=Retry(1, 500, 20_000, 30_000),
    )


def test_every_key_is_read(parse):
    found = parse(
        "degrade: {at: 0.5, output_floor: 64, trim: false, cache_5m: false}\n"
        "landing: {calls: 2, max_output_tokens: 512}\napprovals: {wait: 45s}\n"
        "breaker: {usd: 2.50, window: 2m, cooldown: 10m, by: both}\nloop: {repeats: 3, action: stop}\n"
        "retry: {attempts: 3, base: 1s, max: 8s, after_max: 1m}\n"
        "fallbacks: {openai/*: [openai/gpt-5.4-mini, groq/llama]}\ncheaper: {anthropic/claude-opus-5: [anthropic/claude-x]}\n"
    ).near_cap

    assert found.degrade == Degrade(True, "0.5", 64, False, False)
    assert (found.landing, found.approvals_wait_ms) == (Landing(2, 512), 45_000)
    assert found.breaker == Breaker(Money(2_500_000_000), 120_000, 600_000, "both")
    assert (found.loop, found.retry) == (Loop(3, "stop"), Retry(3, 1000, 8000, 60_000))
    assert found.fallbacks == {"openai/*": ("openai/gpt-5.4-mini", "groq/llama")}
    assert found.cheaper == {"anthropic/claude-opus-5": ("anthropic/claude-x",)}


def test_degrading_is_off_by_one_word(parse):
    assert not parse("degrade: off").near_cap.degrade.on
    assert not parse("degrade: {at: 0.5}", degrade="off").near_cap.degrade.on
    assert parse("degrade:").near_cap.degrade == Degrade()


def test_options_lie_over_the_file(parse):
    found = parse("breaker: {usd: 5}", breaker_usd="1", loop_action="off", retry_attempts="2").near_cap

    assert (found.breaker.usd, found.loop.action, found.retry.attempts) == (Money(10**9), "off", 2)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("degrade: {at: x}", 'degrade.at is "x"; a share'),
        ("degrade: on", 'degrade is "on"; off or a mapping of at, '),
        ("landing: {calls: 1001}", 'landing.calls is "1001"; a whole number from 0 to 1000'),
        ("breaker: {bye: task}", "did you mean by?"),
        ("breaker: {window: 0s}", 'breaker.window is "0s"; a duration from 1s to 24h is allowed'),
        ("loop: {repeats: 1}", 'loop.repeats is "1"; a whole number from 2 to 1000'),
        ("retry: {attempts: 0}", 'retry.attempts is "0"; a whole number from 1 to 10'),
        ("fallbacks: {gpt-5: [openai/x]}", 'is for no model; "provider/model" or "provider/*" is allowed'),
        ("fallbacks: {'*/gpt': [openai/x]}", "is for no model"),
        ("fallbacks: {openai/a: []}", "names no model to take instead"),
        ("cheaper: {openai/a: [openai/*]}", 'a model as "provider/model"'),
        ("cheaper: {openai/a: openai/b}", "a list, such as [a, b], is allowed"),
        ("fallbacks: none.json", "fallbacks names a file that cannot be taken: "),
    ],
)
def test_a_mistake_is_one_line(refuse, line, words):
    message = refuse(line)

    assert message.startswith("lockpin.yaml:1: ")
    assert words in message
    assert "\n" not in message


def test_a_file_may_stand_in_their_place(tmp_path):
    (tmp_path / "models.json").write_text(
        '{"fallbacks": {"openai/a": ["openai/b"]}, "cheaper": {"openai/*": ["openai/c"]}}'
    )
    file = tmp_path / "lockpin.yaml"
    file.write_text("fallbacks: models.json\ncheaper: models.json\n")

    config = load(file, env={})

    assert config.near_cap.fallbacks == {"openai/a": ("openai/b",)}
    assert config.near_cap.cheaper == {"openai/*": ("openai/c",)}
    assert config.files() == (file, tmp_path / "models.json")
    assert included_files(file.read_text(), file) == (tmp_path / "models.json",)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("fallbacks", '{"cheaper": {"openai/*": ["openai/c"]}}'),
        ("cheaper", '{"fallbacks": {"openai/*": ["openai/c"]}}'),
        ("fallbacks", ""),
        ("cheaper", "{}"),
    ],
)
def test_a_file_without_the_key_that_names_it_is_an_error(refuse, tmp_path, key, words):
    (tmp_path / "here" / "models.json").write_text(words)

    assert refuse(f"{key}: models.json") == (
        f'lockpin.yaml:1: {key} is "models.json"; that file has no {key}: its key {key}, with a mapping as it may stand '
        "here, is needed"
    )


def test_a_json_file_is_said_to_be_no_json(refuse, tmp_path):
    (tmp_path / "here" / "models.json").write_text('{"fallbacks": ')
    assert "models.json:1: not JSON: " in refuse("fallbacks: models.json")
    assert "No such file or directory; the path of a YAML or JSON file is allowed" in refuse("fallbacks: none.json")

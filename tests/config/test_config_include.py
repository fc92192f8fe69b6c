"""Gateway policy files under `include:`. What they say is as if it stood in lockpin.yaml; the rest of them is not ours."""

from pathlib import Path

import pytest

from lockpin_core.budgets import Budget
from lockpin_core.config import Config, Places, load, parse
from lockpin_core.config_include import included_files
from lockpin_core.errors import ConfigError
from lockpin_core.money import Money
from lockpin_core.windows import Window

BUDGET = "{name: %s, scope: machine, window: day, limitUSD: 1}"


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path, tmp_path / "config", tmp_path / "data")


@pytest.fixture
def read(places: Places):
    def read(text: str, **included: str) -> Config:
        for name, words in included.items():
            (places.here / f"{name}.yaml").write_text(words, "utf-8")
        file = places.here / "lockpin.yaml"
        file.write_text(text, "utf-8")
        return load(file, env={}, places=places)

    return read


@pytest.fixture
def refuse(read, places: Places):
    def refuse(text: str, **included: str) -> str:
        with pytest.raises(ConfigError) as caught:
            read(text, **included)
        assert "\n" not in str(caught.value)
        return str(caught.value).replace(f"{places.here}/", "")

    return refuse


def test_prices_and_budgets_of_a_gateway_are_taken_in_its_own_spelling(read, places: Places):
    config = read(
        "include: [gateway.yaml]\nbudgets:\n- {name: own, scope: task, window: day, limit_usd: 3}\n",
        gateway="""
apiVersion: v1
listeners: [{name: public, port: 8443}]
pricing:
  in-house-70b: {inputPerMTok: 0.4, outputPerMTok: 0.6, cacheReadPerMTok: 0.04, cacheWritePerMTok: 0.5}
budgets:
  - name: night
    scope: machine
    window: rolling
    period: 24h
    limitTokens: 150000000
    limitUSD: 20
    alertAt: [0.5, 0.9]
    action: enforce
    models: ["claude-*"]
""",
    )

    night = Budget(
        name="night", scope="machine", window=Window("rolling", period_ms=86_400_000), limit=Money.parse("20"),
        limit_tokens=150_000_000, enforce=True, alert_at=("0.5", "0.9"), models=("claude-*",),
    )  # fmt: skip
    own = Budget("own", "task", Window("day"), limit=Money.parse("3"))
    assert config.budgets == (own, night)
    assert config.pricing == {
        "in-house-70b": {
            "inputPerMTok": "0.4", "outputPerMTok": "0.6", "cacheReadPerMTok": "0.04", "cacheWritePerMTok": "0.5",
        }
    }  # fmt: skip
    assert config.files() == (places.here / "lockpin.yaml", places.here / "gateway.yaml")


def test_what_a_gateway_does_not_say_is_a_warning_at_four_fifths_by_utc(read):
    config = read(
        f"timezone: Europe/Berlin\ninclude: [g.yaml]\nbudgets: [{BUDGET % 'own'}]\n",
        g=f"budgets:\n- {BUDGET % 'theirs'}\n- {{name: z, scope: task, window: week, limitUSD: 1, timezone: Asia/Tokyo}}",
    )

    own, theirs, z = config.budgets
    assert (own.window.zone, theirs.window.zone, z.window.zone) == ("Europe/Berlin", "UTC", "Asia/Tokyo")
    assert (theirs.enforce, theirs.alert_at) == (False, ("0.8",))


def test_other_keys_of_a_gateway_may_say_whatever_they_like(read):
    config = read(
        "include: [g.yaml]",
        g=f"""
defaults: &usual {{a: 1}}
routes: {{<<: *usual, daily_usd: 5}}
secret: !vault abc
mode: team
mode: again
budgets: [{BUDGET % "theirs"}]
""",
    )

    assert [budget.name for budget in config.budgets] == ["theirs"]
    assert config.daily_usd == Money.parse("25")


def test_several_files_are_taken_relative_to_the_file_that_names_them(places: Places):
    folder = places.here / "deep"
    folder.mkdir()
    (folder / "a.yaml").write_text(f"budgets: [{BUDGET % 'a'}]")
    (places.here / "b.yaml").write_text("pricing: {m: {free: true}}")
    (folder / "lockpin.yaml").write_text("include:\n- a.yaml\n- ../b.yaml\n")

    config = load(folder / "lockpin.yaml", env={}, places=places)

    assert ([budget.name for budget in config.budgets], list(config.pricing)) == (["a"], ["m"])
    assert config.files()[1:] == (folder / "a.yaml", folder / "../b.yaml")


@pytest.mark.parametrize(
    ("text", "included", "message"),
    [
        (
            f"include: [g.yaml]\nbudgets:\n- {BUDGET % 'a'}\n",
            {"g": f"budgets:\n- {BUDGET % 'b'}\n- {BUDGET % 'a'}\n"},
            'g.yaml:3: budgets[1].name is "a", the name of a budget on line 3 of lockpin.yaml; a name of its own is',
        ),
        (
            "include: [g.yaml, h.yaml]\n",
            {"g": f"budgets: [{BUDGET % 'a'}]", "h": f"\n\nbudgets: [{BUDGET % 'a'}]"},
            'h.yaml:3: budgets[0].name is "a", the name of a budget on line 1 of g.yaml; a name of its own is allowed',
        ),
        (
            "include: [g.yaml]\n",
            {"g": f"budgets:\n- {BUDGET % 'daily'}\n"},
            'g.yaml:2: budgets[0].name is "daily", the name of the budget of daily_usd; a name of its own is allowed',
        ),
        (
            "include: [g.yaml]\npricing:\n  m: {free: true}\n",
            {"g": "pricing:\n  n: {free: true}\n  m: {inputPerMTok: 1, outputPerMTok: 1}\n"},
            "g.yaml:3: pricing.m has prices on line 3 of lockpin.yaml too; one of the two is allowed",
        ),
        (
            "include: [g.yaml]\n",
            {"g": "budgets:\n- {name: a, scope: machine,\n   window: day, limitUSD: -5}\n"},
            'g.yaml:3: budgets[0].limitUSD is "-5"; a positive amount is allowed',
        ),
        (
            "include: [g.yaml]\n",
            {"g": "pricing:\n  m:\n    inputPerMTok: lots\n"},
            "g.yaml:3: pricing.m.input is 'lots'",
        ),
        ("include: [g.yaml]\n", {"g": "pricing: [m]\n"}, "g.yaml:1: pricing is a list; a mapping of models is allowed"),
        ("include: [g.yaml]\n", {"g": "budgets: {a: 1}\n"}, "g.yaml:1: budgets is a mapping; a list, such as [a, b],"),
        ("include: [g.yaml]\n", {"g": "budgets: [\n"}, "g.yaml:1: not YAML: "),
        (
            "include: [g.yaml]\n",
            {"g": "token: hunter2\n"},
            "g.yaml:1: the file has neither pricing nor budgets; a gateway policy file with one of them is allowed",
        ),
        ("include: [g.yaml]\n", {"g": "# nothing\n"}, "g.yaml:1: the file has neither pricing nor budgets; a gateway"),
        (
            "\ninclude:\n- none.yaml\n",
            {},
            "lockpin.yaml:3: include[0] names a file that cannot be taken: none.yaml: cannot be read: No such file",
        ),
        ("include: ['.']\n", {}, "lockpin.yaml:1: include[0] names a file that cannot be taken: "),
        ('include: ["a\\0b"]\n', {}, "lockpin.yaml:1: include[0] names no file; the path of a gateway policy file is"),
        (
            "include: [g.yaml, g.yaml]\n",
            {"g": "budgets: []\n"},
            "lockpin.yaml:1: include[1] names g.yaml for the second time; one is allowed",
        ),
        ("include: g.yaml\n", {}, 'lockpin.yaml:1: include is "g.yaml"; a list, such as [a, b], is allowed'),
        ("include: [{a: b}]\n", {}, "lockpin.yaml:1: include[0] is a mapping; a text is allowed"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_file_and_the_line(refuse, text, included, message):
    told = refuse(text, **included)

    assert told.startswith(message)
    assert "hunter2" not in told


def test_name_without_end_is_not_repeated_to_its_end(refuse):
    told = refuse(f"include: [{'x' * 9000}]\n")

    assert told.startswith("lockpin.yaml:1: include[0] names a file that cannot be taken: ")
    assert told.endswith("…: cannot be read: File name too long; the path of a YAML or JSON file is allowed")
    assert len(told) < 800


def test_words_that_are_given_are_taken_for_those_of_the_file(read, places: Places):
    text = "include: [g.yaml]"
    read(text, g=f"budgets: [{BUDGET % 'a'}]")
    file = places.here / "lockpin.yaml"
    there = {places.here / "g.yaml": f"budgets: [{BUDGET % 'b'}]"}

    config = parse(text, file, places=places, included=there)

    assert [budget.name for budget in config.budgets] == ["b"]


def test_the_files_are_named_without_reading_them():
    assert included_files("include: [a.yaml, b/c.yaml]", Path("x/lockpin.yaml")) == (
        Path("x/a.yaml"),
        Path("x/b/c.yaml"),
    )
    assert included_files("include:", Path("lockpin.yaml")) == ()
    assert included_files("daily_usd: 5", Path("lockpin.yaml")) == ()

import csv
import io
import json
from dataclasses import replace
from datetime import date
from types import SimpleNamespace

import pytest

from lockpin_cli.price_checks import _stale, _update_record
from lockpin_core.price_table import Model, PriceTable
from lockpin_core.price_update import Change
from lockpin_core.prices import shipped_dir

MODEL = Model("acme", "m", (), checked=date(2026, 6, 1))


def test_models_are_listed_with_their_prices(lockpin):
    models = json.loads(
        lockpin("prices", "list", "--provider", "anthropic", "--model", "claude-opus-4-5", "--format", "json").stdout
    )

    assert [(model["provider"], model["model"]) for model in models] == [("anthropic", "claude-opus-4-5")]
    (opus,) = models
    assert (opus["input_per_mtok"], opus["output_per_mtok"], opus["cache_read_per_mtok"]) == ("5", "25", "0.5")
    assert (opus["cache_write_5m_per_mtok"], opus["cache_write_1h_per_mtok"]) == ("6.25", "10")
    assert opus["context_tokens"] == 200000
    assert opus["checked"]


def test_own_prices_come_first_and_are_marked(lockpin, home):
    home.config("pricing:\n  my-model: {input_per_mtok: 1, output_per_mtok: 4}\n")

    rows = list(csv.DictReader(io.StringIO(lockpin("prices", "list", "--format", "csv").stdout)))

    assert (rows[0]["provider"], rows[0]["model"], rows[0]["input_per_mtok"]) == ("(yours)", "my-model", "1")


def test_provider_narrows_the_list(lockpin):
    rows = [
        json.loads(line)
        for line in lockpin("prices", "list", "--provider", "openai", "--format", "jsonl").stdout.splitlines()
    ]

    assert {row["provider"] for row in rows} == {"openai"}


def test_table_says_what_its_numbers_are(lockpin):
    lines = lockpin("prices", "list", "--model", "claude-opus-*").stdout.splitlines()

    assert lines[0].startswith("PROVIDER")
    assert lines[-1].startswith("dollars per million tokens, standard tier; shipped prices checked 20")


def test_no_match_is_said(lockpin):
    done = lockpin("prices", "list", "--model", "no-such-*")

    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "no model matches")


def test_only_providers_with_prices_are_named_as_allowed(lockpin):
    done = lockpin("prices", "list", "--provider", "antropic")

    assert done.returncode == 2
    assert '"antropic" is no provider with prices; there are anthropic, ' in done.stderr


def test_known_provider_without_prices_says_so(lockpin, home):
    table = PriceTable.load(shipped_dir())
    none = sorted(table.shipped.keys() - {provider for provider, _ in table.names()})
    if not none:
        pytest.skip("every provider has prices")

    done = lockpin("prices", "list", "--provider", none[0])

    assert (done.returncode, done.stdout) == (1, "")
    assert f'no prices of "{none[0]}" are in this version' in done.stderr
    home.config("pricing:\n  my-model: {input_per_mtok: 1, output_per_mtok: 4}\n")
    assert "my-model" in lockpin("prices", "list", "--provider", none[0]).stdout


@pytest.mark.parametrize("name", ["claude-haiku-5-5", "anthropic/claude-haiku-5-5", "claude-haiku-5-5-20261001"])
def test_model_is_shown_with_its_bands_and_tiers(lockpin, name):
    models = json.loads(lockpin("prices", "show", name, "--format", "json").stdout)

    (model,) = [model for model in models if model["provider"] == "anthropic"]
    prices = {(row["tier"], row["above_tokens"]): row for row in model["prices"]}
    assert prices["standard", 0]["input_per_mtok"] == "0.1"
    assert prices["standard", 100_001]["output_per_mtok"] == "2.5"
    assert prices["batch", 0]["output_per_mtok"] == "0.25"
    assert (model["context_tokens"], model["max_output_tokens"]) == (1_000_000, 128_000)
    assert model["fees"]["web_search"] == "0.01"
    assert model["sources"]
    assert model["checked"]


def test_provider_before_the_name_shows_that_one_alone(lockpin):
    done = lockpin("prices", "show", "anthropic/claude-opus-5-5")

    assert {line.split()[0] for line in done.stdout.splitlines()[1:3]} == {"anthropic"}
    assert "regions: us ×1.1" in done.stdout
    assert "speeds: fast ×2" in done.stdout
    assert "max output tokens: 128,000" in done.stdout


def test_own_model_is_shown_as_yours(lockpin, home):
    home.config("pricing:\n  my-model: {input_per_mtok: 1, output_per_mtok: 4}\n")

    assert lockpin("prices", "show", "my-model").stdout.splitlines()[1].split()[:2] == ["(yours)", "my-model"]


def test_unknown_model_is_one_line_with_what_may_be_meant(lockpin):
    done = lockpin("prices", "show", "claude-opus-55")

    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "did you mean claude-opus-5-5" in done.stderr


def test_diff_shows_what_own_entries_change_and_what_they_add(lockpin, home):
    home.config(
        "pricing:\n"
        "  claude-opus-4-5: {input_per_mtok: 6, output_per_mtok: 25, cache_read_per_mtok: 0.5}\n"
        "  my-model: {input_per_mtok: 1, output_per_mtok: 4}\n"
    )

    rows = json.loads(lockpin("prices", "diff", "--format", "json").stdout)
    changed = {row["unit"]: row for row in rows if row["kind"] == "changed" and "anthropic" in row["provider"]}
    added = {row["unit"]: row["yours"] for row in rows if row["kind"] == "added"}
    assert (changed["input"]["shipped"], changed["input"]["yours"], changed["input"]["change"]) == ("5", "6", "+20.0%")
    assert "output" not in changed
    assert changed["web_search"]["yours"] is None  # an entry with prices has fees of its own, or none
    assert (added["input"], added["output"]) == ("1", "4")
    shown = lockpin("prices", "diff").stdout
    assert "+20.0%" in shown
    assert "in no shipped table:" in shown


def test_diff_without_own_entries_says_so(lockpin):
    assert lockpin("prices", "diff").stdout == "pricing: of lockpin.yaml changes no shipped price\n"


def test_check_is_content_with_fresh_prices(lockpin):
    done = lockpin("prices", "check", "--days", "36500")

    assert done.returncode == 0
    assert done.stdout.startswith("prices: ok; shipped ones checked 20")


def test_check_names_models_that_were_called_without_a_price(lockpin, ledger, home):
    done = lockpin("prices", "check", "--days", "36500", "--format", "json")

    assert done.returncode == 1
    (found,) = json.loads(done.stdout)
    assert (found["what"], found["provider"], found["model"]) == ("no price", "openai", "gpt-x")
    assert found["detail"].startswith("1 refused; an entry in `pricing:` prices it")
    home.config("pricing:\n  gpt-x: {input_per_mtok: 1, output_per_mtok: 4}\n")
    done = lockpin("prices", "check", "--days", "36500")
    assert done.returncode == 0
    assert "1 of your own is sound" in done.stdout


def test_check_names_providers_whose_prices_are_old(tmp_path):
    old = replace(MODEL, checked=date(2026, 1, 2))
    table = SimpleNamespace(shipped={"acme": {}, "new": {}}, models=lambda name: [old] if name == "acme" else [MODEL])

    (found,) = _stale(table, date(2026, 6, 1))

    assert (found["provider"], found["model"]) == ("acme", "m")
    assert found["detail"].startswith("1 not checked since 2026-01-02")


def test_own_entry_that_is_wrong_is_one_line(lockpin, home):
    home.config("pricing:\n  my-model: {input_per_mtok: cheap}\n")

    for words in (["check"], ["diff"], ["show", "my-model"]):
        done = lockpin("prices", *words)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert "lockpin.yaml:2" in done.stderr


@pytest.fixture
def later(home):
    """Have a later price than the shipped one of a model whose input costs $5; give how to set it and to read it."""
    folder = home.path / "config" / "lockpin" / "prices"

    def set_input(dollars: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "anthropic.yaml").write_text(
            "provider: anthropic\nmodels:\n"
            f"  claude-opus-4-5: {{context_tokens: '200000', max_output_tokens: '64000', prices: [{{input: '{dollars}', "
            "output: '25', cache_read: '0.5', cache_write: {5m: '6.25', 1h: '10'}}], checked: '2026-11-01', "
            "sources: {genai-prices: 0.0.1}}\n"
        )

    return set_input


def _input(lockpin) -> str:
    words = ("prices", "list", "--provider", "anthropic", "--model", "claude-opus-4-5", "--format", "json")
    (model,) = json.loads(lockpin(*words).stdout)
    return model["input_per_mtok"]


def test_update_takes_what_got_dearer(lockpin, later):
    later("4")
    assert _input(lockpin) == "4"

    tried = lockpin("prices", "update", "--dry-run", "--format", "json")
    assert _input(lockpin) == "4"
    done = lockpin("prices", "update")

    found = [row for row in json.loads(tried.stdout) if row["what"] == "input"]
    assert found == [
        {"provider": "anthropic", "model": "claude-opus-4-5", "what": "input", "before": "4", "after": "5", "kind": "dearer",
         "from": None},
    ]  # fmt: skip
    assert (done.returncode, _input(lockpin)) == (0, "5")
    assert "1 model written to " in done.stderr


def test_update_lowers_nothing_without_yes(lockpin, later):
    later("6")

    done = lockpin("prices", "update")
    assert (_input(lockpin), done.returncode) == ("6", 0)
    assert "--yes takes them" in done.stderr
    later("6")
    lockpin("prices", "update", "--yes")
    assert _input(lockpin) == "5"


def test_second_update_that_takes_nothing_says_so_and_writes_nothing(lockpin, later, home):
    later("6")

    first = lockpin("prices", "update")
    file = home.path / "config" / "lockpin" / "prices" / "anthropic.yaml"
    written = file.read_text()
    second = lockpin("prices", "update")

    words = "nothing is written, as nothing more is taken; 1 that fell keep their value, --yes takes them"
    assert "1 model written to " in first.stderr  # what its sources say of it besides
    assert second.stderr == f"lockpin: {words}\n"
    assert file.read_text() == written
    assert "1 model written to " in lockpin("prices", "update", "--yes").stderr
    assert lockpin("prices", "update", "--yes").stderr == ""


@pytest.mark.parametrize(
    ("field", "yes", "kind"),
    [("", False, "kept"), ("", True, "kept"), ("fees.web_search", False, "kept"), ("fees.web_search", True, "gone")],
)
def test_update_says_what_becomes_of_what_no_source_has(field, yes, kind):
    change = Change("acme", "m", field, None, None, "gone")

    assert _update_record(change, yes=yes)["kind"] == kind


def test_update_with_nothing_new_says_so(lockpin):
    done = lockpin("prices", "update")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("prices: as in genai-prices ")

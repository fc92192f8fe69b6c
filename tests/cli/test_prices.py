import csv
import io
import json


def test_models_are_listed_with_their_prices(lockpin):
    models = json.loads(lockpin("prices", "list", "--model", "claude-opus-4-5", "--format", "json").stdout)

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
    assert '"antropic" is no provider with prices; there are anthropic, openai;' in done.stderr


def test_known_provider_without_prices_says_so(lockpin, home):
    done = lockpin("prices", "list", "--provider", "groq")

    assert (done.returncode, done.stdout) == (1, "")
    assert 'no prices of "groq" are in this version' in done.stderr
    home.config("pricing:\n  my-model: {input_per_mtok: 1, output_per_mtok: 4}\n")
    assert "my-model" in lockpin("prices", "list", "--provider", "groq").stdout

from pathlib import Path

import pytest

from lockpin_core.errors import PriceError
from lockpin_core.price_shelf import Shelf, undated
from lockpin_core.prices import PriceTable, shipped_dir
from lockpin_core.provider_files import read_files, read_yaml
from lockpin_core.usage import Unit

SOURCED = "checked: 2026-01-01, sources: {a: b}"
FILES = read_files(shipped_dir())


def shelf(text: str, newer: str | None = None) -> Shelf:
    tree = {"provider": "p", "models": text}
    return Shelf("p.yaml", tree, None if newer is None else {"provider": "p", "models": newer})


def price_of(found: Shelf, key: str) -> int:
    return found[key].prices[-1].tiers["standard"].band(0).rates[Unit.INPUT]


@pytest.mark.parametrize(("file", "tree"), FILES, ids=[file for file, _ in FILES])
def test_the_index_of_a_shipped_file_has_every_entry_and_alias_of_it(file, tree):
    whole = read_yaml(file, f"models:\n{tree['models']}") if tree.get("models") else {"models": {}}
    entries = whole["models"]
    found = Shelf(file, tree)

    assert list(found) == list(entries)
    assert found.names == {alias: key for key, entry in entries.items() for alias in entry.get("aliases", ())}
    assert all(found.written(key) == entry for key, entry in entries.items())
    factors = {factor for entry in entries.values() for factor in entry.get("geo", {}).values()}
    assert found.rules.dearest_geo == ((11, 10) if "1.1" in factors else (1, 1))


def test_a_vendor_whose_models_all_say_what_a_region_costs_may_say_what_it_costs_for_others():
    text = f"  a: {{input: '1', geo: {{x: '1.7'}}, {SOURCED}}}\n"
    found = Shelf("p.yaml", {"provider": "p", "unlisted_geo": "1.2", "models": text})

    assert found.rules.dearest_geo == (6, 5)
    assert found["a"].geos == {"x": (17, 10)}


def test_an_entry_is_read_when_it_is_asked_for_and_hurts_nobody_before():
    found = shelf(f"  good: {{input: '1', {SOURCED}}}\n  bad: {{input: cheap, {SOURCED}}}\n")

    assert price_of(found, "good") == 1_000_000
    with pytest.raises(PriceError, match=r"p\.yaml: bad\.input is 'cheap'"):
        found["bad"]


def test_names_of_every_spelling_are_indexed():
    text = f"""\
  # a comment
  '@cf/meta/m': {{input: '1', {SOURCED}}}
  "b:free": {{input: '2', {SOURCED}}}
  org/name:batch: {{input: '3', {SOURCED}}}
  ~org/latest:
    aliases: [one, 'two:x',
      "three"]
    input: '4'
    checked: 2026-01-01
    sources: {{a: b}}
  empty: {{}}
"""
    found = shelf(text)

    assert list(found) == ["@cf/meta/m", "b:free", "org/name:batch", "~org/latest"]
    assert [price_of(found, key) for key in found] == [1_000_000, 2_000_000, 3_000_000, 4_000_000]
    assert found.names == {"one": "~org/latest", "two:x": "~org/latest", "three": "~org/latest"}
    assert found.known("three-2026-01-31") == found.known("two:x@20260131") == "~org/latest"
    assert "empty" not in found


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        (
            "\n    input: '1'\n    aliases:\n    - x\n    checked: 2026-01-01\n    sources: {a: b}",
            "must list its aliases",
        ),
        (
            "\n    input: '1'\n    geo:\n      us: '1.1'\n    checked: 2026-01-01\n    sources: {a: b}",
            "must list its regions",
        ),
        (" {input: '1'}", "must say when it was checked and its sources"),
        (" 5", "p.yaml: m is {'m': '5'}; an entry indented by two spaces is allowed"),
    ],
)
def test_an_entry_that_the_index_would_misread_is_an_error(entry, said):
    with pytest.raises(PriceError) as caught:
        shelf(f"  m:{entry}\n")["m"]

    assert said in str(caught.value)


def test_later_prices_stand_in_place_of_the_files_own():
    found = shelf(
        f"  a: {{input: '1', {SOURCED}}}\n  b: {{input: '2', geo: {{us: '1.1'}}, {SOURCED}}}\n",
        f"  b: {{input: '3', aliases: [bee], {SOURCED}}}\n  c: {{input: '4', geo: {{us: '1.3'}}, {SOURCED}}}\n",
    )

    assert [price_of(found, key) for key in ("a", "b", "c")] == [1_000_000, 3_000_000, 4_000_000]
    assert found.known("bee") == "b"
    assert found.rules.dearest_geo == (13, 10)


def test_a_folder_of_later_prices_is_laid_over_the_shipped_table(tmp_path: Path):
    entry = f"  gpt-5.5: {{input: '7', output: '8', {SOURCED}}}\n  gpt-77: {{input: '9', {SOURCED}}}\n"
    (tmp_path / "openai.yaml").write_text(f"provider: openai\nmodels:\n{entry}")

    table = PriceTable.load(shipped_dir(), updates=tmp_path)

    assert price_of(table.shipped["openai"], "gpt-5.5") == 7_000_000
    assert table.find("openai", "gpt-77") is not None
    assert table.find("openai", "gpt-4o").prices == PriceTable.load(shipped_dir()).find("openai", "gpt-4o").prices
    assert PriceTable.load(shipped_dir(), updates=tmp_path / "nothing").date == PriceTable.load(shipped_dir()).date


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("m-2026-01-31", "m"),
        ("m-20260131", "m"),
        ("m@20260131", "m"),
        ("m-2026-01-32", None),
        ("m-2026013", None),
        ("m", None),
        ("-2026-01-31", None),
    ],
)
def test_only_a_whole_date_is_taken_off_a_name(name, plain):
    assert undated(name) == plain

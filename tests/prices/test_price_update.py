import copy
import tempfile
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from genai_prices.types import (
    ClauseEquals,
    ClauseOr,
    ConditionalPrice,
    ModelInfo,
    ModelPrice,
    PriceVariant,
    Provider,
    StartDateConstraint,
    Tier,
    TieredPrices,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lockpin_core.call import Terms
from lockpin_core.errors import PriceError
from lockpin_core.money import Money
from lockpin_core.price_sources import Packages
from lockpin_core.price_update import apply, changes
from lockpin_core.prices import PriceTable, price, shipped_dir
from lockpin_core.usage import Unit

D = Decimal
TODAY = date(2026, 12, 20)
NOW, BEFORE = datetime(2026, 12, 21, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
TABLE = PriceTable.load(shipped_dir())
PLAIN = Terms()
PRO = "deepseek-v4-pro"


def packages(*models: ModelInfo, provider: str = "deepseek", litellm: dict | None = None) -> Packages:
    versions = {"genai-prices": "9.9", "litellm": "8.8", "overlay": "by hand"}
    return Packages([Provider(provider, "P", "x", models=list(models))], litellm or {}, versions)


def model(name: str, prices, **kw) -> ModelInfo:
    return ModelInfo(name, ClauseEquals(name), prices=prices, **kw)


def pro(usd_in: str, usd_out: str = "3.96", cached: str = "0.044") -> ModelPrice:
    return ModelPrice(input_mtok=D(usd_in), output_mtok=D(usd_out), cache_read_mtok=D(cached))


def found(news: Packages, name: str = "deepseek-v4-pro", table: PriceTable = TABLE, provider: str = "deepseek"):
    return [c for c in changes(table, news, today=TODAY) if (c.provider, c.model) == (provider, name)]


def said(news: Packages, name: str = "deepseek-v4-pro") -> set[tuple]:
    return {(change.field, change.before, change.after, change.kind) for change in found(news, name)}


def updated(folder: Path, news: Packages, name: str = "deepseek-v4-pro", *, lower: bool = False) -> PriceTable:
    apply(found(news, name), folder, lower=lower)
    return PriceTable.load(shipped_dir(), updates=folder)


def million(table: PriceTable, at: datetime, terms: Terms = PLAIN, unit: Unit = Unit.INPUT, name="deepseek-v4-pro"):
    return Money.from_pico(price(table.find("deepseek", name), {unit: 1_000_000}, terms, at)).exact()


def test_every_difference_is_named_with_both_values_and_its_kind():
    news = packages(model("deepseek-v4-pro", pro("2", "3"), context_window=2_000_000))

    assert said(news) == {
        ("input", "1.32", "2", "dearer"),
        ("output", "3.96", "3", "cheaper"),
        ("context_tokens", "1000000", "2000000", "dearer"),
        ("max_output_tokens", "393216", None, "gone"),
    }


def test_what_is_as_it_was_is_no_change():
    same = model("deepseek-v3.1-terminus", pro("0.27", "0.95", "0.13"), context_window=128_000)

    assert said(packages(same), "deepseek-v3.1-terminus") == set()


def test_a_new_model_and_one_that_is_gone_are_named():
    news = packages(model("deepseek-v9", pro("1")))

    assert [(c.field, c.kind) for c in found(news, "deepseek-v9")] == [("", "new")]
    assert [(c.field, c.kind) for c in found(news, "deepseek-v4-pro")] == [("", "gone")]


def test_a_price_that_begins_later_is_a_change_of_that_day():
    later = ConditionalPrice(StartDateConstraint(date(2027, 2, 1)), prices=pro("5"))
    news = packages(model("deepseek-v4-pro", [ConditionalPrice(None, prices=pro("1.32")), later], context_window=10**6))

    prices = [(c.field, c.start, c.after) for c in found(news) if c.field not in ("max_output_tokens",)]

    assert prices == [("input", date(2027, 2, 1), "5")]


def test_without_a_package_what_it_alone_knew_is_not_gone():
    news = Packages(packages(model("deepseek-v4-pro", pro("2"))).genai, None, {"genai-prices": "9.9"})

    assert said(news) == {("input", "1.32", "2", "dearer")}
    assert found(news, "deepseek-flash") == []


def test_the_packages_that_the_table_was_made_of_change_nothing_though_one_is_missing():
    version = next(iter(TABLE.shipped["deepseek"].written("deepseek-v4-pro")["sources"].values()))
    news = Packages(packages(model("deepseek-v4-pro", pro("2"))).genai, None, {"genai-prices": version})

    assert found(news) == []


def test_no_package_is_no_change():
    assert changes(TABLE, Packages(None, None, {}), today=TODAY) == []


def test_a_dearer_price_is_taken_from_the_day_on_and_the_old_one_stays_for_old_receipts(tmp_path: Path):
    table = updated(tmp_path, packages(model("deepseek-v4-pro", pro("2"), context_window=10**6)))

    assert (million(table, NOW), million(table, BEFORE)) == ("2", "1.32")
    assert million(table, datetime(2026, 8, 1, tzinfo=UTC)) == "0.435"
    entry = table.shipped["deepseek"].entry("deepseek-v4-pro")
    assert (entry.checked, entry.sources) == (TODAY, {"genai-prices": "9.9"})
    assert table.date == TODAY


def test_nothing_gets_cheaper_or_smaller_without_a_word(tmp_path: Path):
    news = packages(model("deepseek-v4-pro", pro("2", "3", "0.001"), context_window=1_000))

    kept, taken = updated(tmp_path / "a", news), updated(tmp_path / "b", news, lower=True)

    assert [million(kept, NOW, unit=unit) for unit in (Unit.INPUT, Unit.OUTPUT, Unit.CACHE_READ)] == [
        "2",
        "3.96",
        "0.044",
    ]
    assert [million(taken, NOW, unit=unit) for unit in (Unit.INPUT, Unit.OUTPUT, Unit.CACHE_READ)] == [
        "2",
        "3",
        "0.001",
    ]
    assert kept.find("deepseek", "deepseek-v4-pro").context_tokens == 1_000_000
    assert taken.find("deepseek", "deepseek-v4-pro").context_tokens == 1_000


def test_a_later_price_is_taken_for_its_day(tmp_path: Path):
    later = ConditionalPrice(StartDateConstraint(date(2027, 2, 1)), prices=pro("5"))
    news = packages(model("deepseek-v4-pro", [ConditionalPrice(None, prices=pro("1.32")), later]))

    table = updated(tmp_path, news)

    assert million(table, NOW) == "1.32"
    assert million(table, datetime(2027, 2, 1, tzinfo=UTC)) == "5"


def test_bands_and_tiers_are_taken(tmp_path: Path):
    banded = ModelPrice(input_mtok=TieredPrices(D("2"), [Tier(200_000, D("4"))]), output_mtok=D("4"))
    flex = PriceVariant({"service_tier": "flex"}, ModelPrice(input_mtok=D("1"), output_mtok=D("2")))
    news = packages(model("deepseek-v4-pro", banded, price_variants=[flex]))

    table = updated(tmp_path, news)

    assert million(table, NOW) == "4"  # a million tokens are a long prompt
    shipped = table.find("deepseek", "deepseek-v4-pro")
    assert Money.from_pico(price(shipped, {Unit.INPUT: 1_000}, Terms("flex"), NOW)).exact() == "0.001"


def test_a_new_model_is_priced_and_what_is_gone_stays(tmp_path: Path):
    news = packages(model("deepseek-v9", pro("7")))

    count = apply(changes(TABLE, news, today=TODAY), tmp_path, lower=True)
    table = PriceTable.load(shipped_dir(), updates=tmp_path)

    assert count == 1
    assert million(table, NOW, name="deepseek-v9") == "7"
    assert million(table, NOW) == "1.32"


def test_a_second_update_adds_to_the_first(tmp_path: Path):
    first = updated(tmp_path, packages(model("deepseek-v9", pro("7"))), "deepseek-v9")
    news = packages(model("deepseek-v8", pro("6")))
    apply([c for c in changes(first, news, today=TODAY) if c.model == "deepseek-v8"], tmp_path)

    table = PriceTable.load(shipped_dir(), updates=tmp_path)

    assert (million(table, NOW, name="deepseek-v9"), million(table, NOW, name="deepseek-v8")) == ("7", "6")
    assert [path.name for path in tmp_path.iterdir()] == ["deepseek.yaml"]


def test_a_table_that_was_updated_has_nothing_left_to_change(tmp_path: Path):
    news = packages(model("deepseek-v4-pro", pro("2"), context_window=10**6))

    table = updated(tmp_path, news, lower=True)

    assert found(news, table=table) == []


def test_a_users_own_price_wins_over_a_later_one(tmp_path: Path):
    updated(tmp_path, packages(model("deepseek-v4-pro", pro("2"))))

    table = PriceTable.load(shipped_dir(), {"deepseek-v4-pro": {"input": "3"}}, updates=tmp_path)

    assert million(table, NOW) == "3"


def test_a_resold_model_that_leaves_its_makers_price_has_its_own(tmp_path: Path):
    entry = {"litellm_provider": "azure", "mode": "chat", "input_cost_per_token": D("0.000009")}
    entry |= {"output_cost_per_token": D("0.00005")}
    apply(found(packages(litellm={"azure/gpt-6.1-sol": entry}), "gpt-6.1-sol", provider="azure"), tmp_path)

    dear = PriceTable.load(shipped_dir(), updates=tmp_path).find("azure", "gpt-6.1-sol")

    assert TABLE.shipped["azure"].entry("gpt-6.1-sol").same_as == "openai/gpt-6.1-sol"
    assert (
        Money.from_pico(price(dear, {Unit.INPUT: 1_000_000}, PLAIN, NOW)).exact() == "18"
    )  # twice for a long prompt still
    assert Money.from_pico(price(dear, {Unit.INPUT: 1_000}, Terms("priority"), NOW)).exact() == "0.018"  # twice still


@pytest.mark.parametrize("lower", [False, True])
def test_whatever_is_taken_can_be_read_again(tmp_path: Path, lower: bool):
    """Every shipped model whose price was doubled, halved or dropped in one source is written and read."""
    news = packages(*(model(name, pro("9", "1", "5")) for name in TABLE.shipped["deepseek"]))

    apply(changes(TABLE, news, today=TODAY), tmp_path, lower=lower)
    table = PriceTable.load(shipped_dir(), updates=tmp_path)

    assert len(table.models("deepseek")) == len(TABLE.models("deepseek"))
    assert all(million(table, NOW, name=name) == "9" for name in table.shipped["deepseek"])


@pytest.mark.parametrize(
    "odd",
    [
        *(
            {"input_cost_per_token": value}
            for value in (float("nan"), float("inf"), D("1e300"), "abc", [1], True, -1, 9000)
        ),
        *({"max_input_tokens": value} for value in ("abc", [1], D("1e40"))),
        {"search_context_cost_per_query": [1]},
        {"tiered_pricing": [{"range": [], "input_cost_per_token": D("1e-6")}]},
    ],
)
def test_what_is_no_price_is_named_and_nothing_of_its_model_is_taken(tmp_path: Path, odd: dict):
    entry = {"litellm_provider": "deepseek", "mode": "chat", "input_cost_per_token": D("1e-6"),
             "output_cost_per_token": D("2e-6"), "max_input_tokens": 1000, "max_output_tokens": 100}  # fmt: skip
    news = packages(model("deepseek-v4-pro", pro("9")), litellm={"deepseek/deepseek-x": entry | odd})

    rows = found(news, "deepseek-x")
    every = changes(TABLE, news, today=TODAY)
    apply([change for change in every if change.kind != "gone"], tmp_path)

    assert [(change.kind, change.update) for change in rows] == [("unreadable", None)]
    table = PriceTable.load(shipped_dir(), updates=tmp_path)
    assert table.find("deepseek", "deepseek-x") is None
    assert million(table, NOW) == "9"  # the rest is taken
    assert found(packages(litellm={"deepseek/deepseek-x": entry}), "deepseek-x")[0].kind == "new"  # without the oddity


def test_prices_that_do_not_fit_together_are_not_written(tmp_path: Path):
    (change,) = found(packages(model("deepseek-x", pro("9"))), "deepseek-x")
    new = {**change.update.new, "aliases": ["deepseek-v4-pro"]}

    with pytest.raises(PriceError, match=r"nothing was written: deepseek\.yaml: deepseek-v4-pro is both a model"):
        apply([replace(change, update=replace(change.update, new=new))], tmp_path)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["models: [", "provider: deepseek\nmodels:\n  deepseek-x: {input: '-1'}\n"])
def test_later_prices_that_cannot_be_read_are_known_at_once_with_the_way_back(tmp_path: Path, text: str):
    (tmp_path / "deepseek.yaml").write_text(text)

    with pytest.raises(
        PriceError, match=rf"(?s){tmp_path}: deepseek\.yaml.*; removing the file takes the shipped prices back"
    ):
        PriceTable.load(shipped_dir(), updates=tmp_path)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path):
    (tmp_path / "prices").write_text("")

    with pytest.raises(PriceError, match="cannot be written to "):
        apply(found(packages(model("deepseek-v4-pro", pro("9")))), tmp_path / "prices")


SHAPES = {
    "gpt-5.6-luna": model(
        "gpt-5.6-luna",
        [
            ConditionalPrice(
                prices=ModelPrice(
                    input_mtok=TieredPrices(base=D("1"), tiers=[Tier(start=272_000, price=D("2"))]),
                    output_mtok=TieredPrices(base=D("6"), tiers=[Tier(start=272_000, price=D("9"))]),
                    web_searches_kcount=D("10"),
                )
            ),
            ConditionalPrice(
                constraint=StartDateConstraint(date(2026, 7, 30)),
                prices=ModelPrice(input_mtok=D("1.5"), cache_read_mtok=D("0.1"), output_mtok=D("7")),
            ),
            ConditionalPrice(
                constraint=StartDateConstraint(date(2027, 1, 1)),
                prices=ModelPrice(input_mtok=D("2"), output_mtok=D("8")),
            ),
        ],
        context_window=1_050_000,
        price_variants=[
            PriceVariant({"service_tier": "priority"}, ModelPrice(input_mtok=D("3"), output_mtok=D("14"))),
            PriceVariant(
                {"processing": "batch"}, ModelPrice(input_mtok=D("0.5")), StartDateConstraint(date(2026, 10, 14))
            ),
            PriceVariant({"speed": "fast"}, ModelPrice(input_mtok=D("9"), output_mtok=D("42"))),
        ],
    ),
    "gpt-9": ModelInfo(
        "gpt-9", ClauseOr([ClauseEquals("gpt-9"), ClauseEquals("gpt-9-latest")]), context_window=100_000,
        prices=ModelPrice(input_mtok=D("1"), output_mtok=D("2"), cache_write_mtok=D("1.25")),
    ),
}  # fmt: skip
ENTRY = {
    "litellm_provider": "openai", "mode": "chat", "input_cost_per_token": D("2e-6"),
    "output_cost_per_token": D("8e-6"), "cache_read_input_token_cost": D("5e-7"),
    "cache_creation_input_token_cost": D("2.5e-6"), "input_cost_per_token_above_272k_tokens": D("4e-6"),
    "input_cost_per_token_priority": D("4e-6"), "max_input_tokens": 400_000, "max_output_tokens": 100_000,
    "tiered_pricing": [{"range": [0, 1000], "input_cost_per_token": D("1e-6")}],
    "regional_processing_uplift_multiplier_eu": D("1.1"), "provider_specific_entry": {"us": D("1.1"), "fast": 2},
    "search_context_cost_per_query": {"search_context_size_low": D("0.01")},
    "google_maps_grounding_cost_per_query": D("0.014"), "input_cost_per_request": D("0.001"),
}  # fmt: skip
ODD = st.sampled_from(
    [
        *(None, True, False, 0, -1, 0.5, 10**13, 10**40, float("nan"), float("inf"), -0.0, 1e-300, "", "12", "-3", "free"),
        *("1e999999", "NaN", "a\nb", " x", "*", "ü" * 300, D("NaN"), D("-1"), D("1e-9"), D("1e9"), D("1e30"), D("sNaN")),
        *([], [[]], [1, [2]], {}, {"a": {}}, b"1", date(2026, 1, 1), NOW, object(), D("0.0000001"), D("999999999")),
        *(ClauseEquals(""), ModelPrice(), TieredPrices(base=D("1"), tiers=[]), "gpt-5.5", "gpt-9"),
    ]
)  # fmt: skip


def places(thing: object) -> list[tuple[object, object]]:
    """List every place of a tree of objects, lists and mappings, as what holds it and its key."""
    if isinstance(thing, dict):
        inner = list(thing.items())
    elif isinstance(thing, list):
        inner = list(enumerate(thing))
    else:
        inner = list(vars(thing).items()) if hasattr(thing, "__dict__") else []
    return [(thing, key) for key, _ in inner] + [place for _, each in inner for place in places(each)]


def spoil(data: st.DataObject, tree: object) -> None:
    """Put something odd into a place of a tree, or take out what is there."""
    holder, key = data.draw(st.sampled_from(places(tree)))
    is_out = data.draw(st.booleans())
    odd = data.draw(ODD)
    match holder:
        case dict() | list() if is_out:
            del holder[key]
        case dict() | list():
            holder[key] = odd
        case _ if is_out:
            delattr(holder, key)
        case _:
            setattr(holder, key, odd)


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_whatever_a_source_has_wrong_the_rest_is_taken_and_all_that_is_written_reads_again(data: st.DataObject):
    models = [copy.deepcopy(shape) for shape in (*SHAPES.values(), *SHAPES.values())]
    entries = {name: copy.deepcopy(ENTRY) for name in ("gpt-5.6-luna", "gpt-9", "gpt-9-mini", "gpt-9-2026-01-01")}
    for tree in data.draw(st.lists(st.sampled_from([*models, *entries.values()]), min_size=1, max_size=6)):
        if places(tree):
            spoil(data, tree)
    news = Packages(
        [Provider("openai", "O", "x", models=models), Provider("deepseek", "P", "x", models=[model(PRO, pro("9"))])],
        entries, packages().versions,
    )  # fmt: skip

    lower = data.draw(st.booleans())

    rows = changes(TABLE, news, today=TODAY)

    with tempfile.TemporaryDirectory() as folder:
        taken = apply(rows, Path(folder), lower=lower)
        table = PriceTable.load(shipped_dir(), updates=Path(folder))
        assert taken
        assert million(table, NOW) == "9"
        assert apply(changes(table, news, today=TODAY), Path(folder), lower=lower) == 0


@pytest.mark.parametrize(
    ("place", "odd"),
    [
        *((lambda m: m.prices, {"input_mtok": odd}) for odd in (D("NaN"), D("-1"), True, [1], "free", D("1e300"))),
        *((lambda m: m, {"context_window": odd}) for odd in ("wide", -1, 10**400, 0.5)),
        (lambda m: m, {"prices": []}),
        (lambda m: m, {"prices": None}),
        (lambda m: m, {"match": None, "price_variants": [None]}),
        (lambda m: m.match, {"equals": 5}),
    ],
)
def test_a_model_of_genai_prices_that_cannot_be_read_is_named(tmp_path: Path, place, odd: dict):
    spoiled = model("deepseek-x", pro("1"))
    for key, value in odd.items():
        setattr(place(spoiled), key, value)
    news = packages(spoiled, model(PRO, pro("9")))

    rows = found(news, "deepseek-x")
    apply(changes(TABLE, news, today=TODAY), tmp_path)

    assert [(change.kind, change.update) for change in rows] == [("unreadable", None)]
    table = PriceTable.load(shipped_dir(), updates=tmp_path)
    assert table.find("deepseek", "deepseek-x") is None
    assert million(table, NOW) == "9"


def test_a_model_without_a_name_is_told_and_the_others_are_taken(tmp_path: Path):
    nameless, listed = model("x", pro("1")), model("x", pro("1"))
    del nameless.id
    listed.id = ["a"]
    news = packages(nameless, listed, model(PRO, pro("9")))

    assert [change.kind for change in found(news, "(a model without a name)")] == ["unreadable"]
    assert million(updated(tmp_path, news), NOW) == "9"


def test_what_one_source_has_wrong_lowers_nothing_though_the_other_is_sound(tmp_path: Path):
    entry = {"litellm_provider": "deepseek", "mode": "chat", "input_cost_per_token": "dear"}
    news = packages(model(PRO, pro("1")), litellm={f"deepseek/{PRO}": entry})

    assert [change.kind for change in found(news)] == ["unreadable"]
    assert apply(found(news), tmp_path, lower=True) == 0


def test_a_name_that_another_model_has_stays_with_it(tmp_path: Path):
    clash = model("deepseek-x", pro("9"))
    clash.match = ClauseEquals(PRO)
    twin = Packages([Provider("deepseek", "P", "x", models=[clash])], {}, packages().versions)

    apply(found(twin, "deepseek-x"), tmp_path)
    table = PriceTable.load(shipped_dir(), updates=tmp_path)

    assert million(table, NOW, name="deepseek-x") == "9"
    assert million(table, NOW) == million(TABLE, NOW)


def test_an_update_of_which_nothing_is_taken_writes_nothing(tmp_path: Path):
    news = packages(model(PRO, pro("1", "3", "0.04")))

    assert {change.kind for change in changes(TABLE, news, today=TODAY)} == {"cheaper", "gone"}
    assert apply(changes(TABLE, news, today=TODAY), tmp_path / "prices") == 0
    assert not (tmp_path / "prices").exists()
    assert apply(changes(TABLE, news, today=TODAY), tmp_path, lower=True) == 1
    lower = PriceTable.load(shipped_dir(), updates=tmp_path)
    assert apply(changes(lower, news, today=TODAY), tmp_path, lower=True) == 0

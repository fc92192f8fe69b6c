from pathlib import Path

import pytest

from lockpin_core.errors import PriceError
from lockpin_core.provider_files import choice, read_files, read_yaml, table, text, texts, whole


def test_every_scalar_is_text():
    assert read_yaml("p.yaml", "a: 0.1\nb: [1, true, null]\n") == {"a": "0.1", "b": ["1", "true", "null"]}


def test_models_stay_one_text_and_the_list_of_what_has_no_price_is_no_provider(tmp_path: Path):
    (tmp_path / "p.yaml").write_text("provider: p\nmodels:\n  m: {input: '1'}\n")
    (tmp_path / "left_out.yaml").write_text("- m\n")

    assert read_files(tmp_path) == [("p.yaml", {"provider": "p", "models": "  m: {input: '1'}\n"})]


@pytest.mark.parametrize("said", ["provider: q\n", "- p\n", "provider: {\n"])
def test_file_that_is_not_its_providers_is_an_error(tmp_path: Path, said: str):
    (tmp_path / "p.yaml").write_text(said)

    with pytest.raises(PriceError, match=r"^p\.yaml (must be a mapping with provider: p|is not YAML)"):
        read_files(tmp_path)


def test_values_are_read_by_their_kind():
    tree = {"a": "x", "b": ["x", "y"], "c": {"x": "y"}}

    assert text("p", tree, "a") == "x"
    assert (texts("p", tree, "b"), texts("p", tree, "none")) == (["x", "y"], [])
    assert (table("p", tree, "c"), table("p", tree, "none")) == ({"x": "y"}, {})
    assert (choice("p", tree, "a", ("y", "x")), choice("p", tree, "none", ("y", "x"))) == ("x", "y")
    assert whole("p", "max_tps", "400") == 400


@pytest.mark.parametrize("value", [None, "0", "-1", "1.5", "", ["1"]])
def test_number_that_is_none_is_named(value: object):
    with pytest.raises(PriceError, match=r"^p\.yaml: max_tps is .*; a whole number above zero is allowed$"):
        whole("p.yaml", "max_tps", value)

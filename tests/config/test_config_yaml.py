import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockpin_core.config_yaml import plain, read
from lockpin_core.errors import ConfigError


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, "lockpin.yaml")
    return str(caught.value)


def test_scalars_stay_as_written():
    tree = read("a: 1.10\nb: off\nc: 'null'\nd: 1e400\ne: 2026-01-01\nf: [0x10, 1_000]\n", "lockpin.yaml")

    assert plain(tree) == {
        "a": "1.10",
        "b": "off",
        "c": "null",
        "d": "1e400",
        "e": "2026-01-01",
        "f": ["0x10", "1_000"],
    }


@pytest.mark.parametrize("null", ["", "~", "null", "Null", "NULL"])
def test_null_is_null_only_without_quotes(null: str):
    tree = read(f"a: {null}\nb: '{null}'\n", "lockpin.yaml")

    assert plain(tree) == {"a": None, "b": null}


@pytest.mark.parametrize("empty", ["", "\n", "# only a comment\n", "---\n", "~\n"])
def test_empty_file_is_an_empty_mapping(empty: str):
    assert plain(read(empty, "lockpin.yaml")) == {}


def test_every_node_knows_its_line_and_path():
    tree = read("a:\n  - x: 1\n    y:\n      - 2\n", "lockpin.yaml")

    inner = tree.entries["a"].items[0].entries["y"]
    assert (inner.where.line, inner.where.path) == (3, "a[0].y")
    assert (inner.items[0].where.line, inner.items[0].where.path) == (4, "a[0].y[0]")


@pytest.mark.parametrize(
    ("text", "line", "fact"),
    [
        ("a: 1\n\tb: 2\n", 2, "tabs are not"),
        ("\ta: 1\n", 1, "tabs are not"),
        ("a: 1\n  b: 2\n", 2, "mapping values are not allowed here"),
        ("a:\n  - 1\n- 2\n", 3, "expected <block end>"),
        ("a: {b: 1", 1, "expected ',' or '}'"),
        ("a: 'x\n\n\n", 1, "unexpected end of stream"),
        ("a: @x\n", 1, "'@'"),
        ("a: 1\n---\nb: 2\n", 2, "single document"),
        ("a: 1\nb: \x07\n", 2, "U+0007"),
        ("- 1\n", 1, "a mapping of keys is allowed"),
        ("just words\n", 1, "the file is a text; a mapping of keys is allowed"),
        ("a: 1\nb: 2\na: 3\n", 3, "a is given a second time, first on line 1"),
        ("x: {a: 1, a: 2}\n", 1, "x.a is given a second time"),
        ("a: &n 1\nb: *n\n", 2, "aliases are not allowed"),
        ("a: &n [*n]\n", 1, "aliases are not allowed"),
        ("a: *n\n", 1, "undefined alias"),
        ("a: 1\nb: !!float 1\n", 2, "has the tag"),
        ("a: !!python/object:os.system 1\n", 1, "has the tag"),
        ("? [1]\n: 2\n", 1, "a name is allowed"),
        ("a: " + "[" * 5000, 1, "nested too deeply"),
        (
            f"a:\n  {'k' * 257}: 1\n",
            2,
            f'a.a key is "{"k" * 80}…"; a name of at most 256 characters is allowed',
        ),
        ('"' + "\\u0085" * 80 + '": 1\n', 1, "; a name of at most 256 characters"),  # as it is told, four for each
    ],
)
def test_malformed_file_is_one_line_with_its_place(text: str, line: int, fact: str):
    message = refusal(text)

    assert message.startswith(f"lockpin.yaml:{line}: ")
    assert fact in message
    assert "\n" not in message


def test_key_of_256_characters_is_read():
    assert read(f"{'k' * 256}: 1\n", "lockpin.yaml").entries["k" * 256].text == "1"


def test_password_in_a_url_is_not_shown():
    message = refusal("postgresql://me:hunter2@db/lockpin")

    assert "hunter2" not in message


@given(st.text(alphabet=st.sampled_from("ab:-[]{}&*!|>'\"%@#,? \n\t1"), max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str):
    try:
        read(text, "lockpin.yaml")
    except ConfigError as error:
        assert str(error).startswith("lockpin.yaml:")
        assert "\n" not in str(error)

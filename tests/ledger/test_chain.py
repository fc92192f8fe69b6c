import hashlib

from lockpin_core.ledger import schema
from lockpin_core.ledger.chain import COLUMNS, ZERO_HASH, encode, row_hash


def test_a_hash_covers_the_previous_one_and_what_is_not_null():
    content = b'{"at":5,"kind":"event","seq":1,"task":"\\u00e9","writer":"w"}'
    columns = ("at", "data", "kind", "seq", "task", "writer")
    assert row_hash(ZERO_HASH, columns, [5, None, "event", 1, "é", "w"]) == hashlib.sha256(bytes(32) + content).digest()
    assert (
        row_hash(b"\1" * 32, columns, [5, None, "event", 1, "é", "w"]) == hashlib.sha256(b"\1" * 32 + content).digest()
    )


def test_canonical_json_is_sorted_and_without_spaces():
    assert encode({"b": [1, None], "a": "ü"}) == '{"a":"\\u00fc","b":[1,null]}'


def test_every_kind_that_is_written_names_columns_of_the_schema():
    for columns in COLUMNS.values():
        assert len(set(columns)) == len(columns)
        assert all(f" {name} " in schema.STATEMENTS[0] or f'"{name}" ' in schema.STATEMENTS[0] for name in columns)

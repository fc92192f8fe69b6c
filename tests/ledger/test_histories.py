from contextlib import closing

import pytest

from lockpin_core.ledger.verify import verify
from tests.ledger.desk import SqliteDesk
from tests.ledger.history import History


@pytest.mark.parametrize("seed", range(24))
def test_books_are_what_a_slow_model_adds_up(tmp_path, seed):
    with closing(SqliteDesk(tmp_path)) as desk:
        History(desk, seed).play(60)
        assert desk.chain_ends()
    assert verify(desk.path).wrong is None

"""The contract on SQLite, and what only a file can do: be shared, be opened again, be proved."""

import pytest

from lockpin_core.ledger.verify import verify
from tests.ledger.desk import SqliteDesk
from tests.ledger.pauses_contract import PausesContract


@pytest.fixture
def desk(tmp_path):
    made = SqliteDesk(tmp_path)
    yield made
    made.close()


class TestSqlitePauses(PausesContract):
    @pytest.fixture(autouse=True)
    def proved(self, desk):
        """After each of them the books are proved."""
        yield
        assert verify(desk.path).wrong is None

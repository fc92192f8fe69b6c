"""What was allowed once, in memory and on SQLite; there the books are proved after each test."""

import pytest

from lockpin_core.ledger.verify import verify
from tests.ledger.allowances_contract import AllowancesContract
from tests.ledger.test_memory_questions import WatchedDesk as MemoryDesk
from tests.ledger.test_questionbook import WatchedDesk as SqliteDesk


class TestInMemory(AllowancesContract):
    @pytest.fixture
    def desk(self):
        made = MemoryDesk()
        yield made
        made.close()


class TestOnSqlite(AllowancesContract):
    @pytest.fixture
    def desk(self, tmp_path):
        made = SqliteDesk(tmp_path)
        yield made
        assert verify(made.path).wrong is None
        made.close()
        assert verify(made.path).wrong is None

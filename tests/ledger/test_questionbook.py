"""The contract on SQLite, and what other processes see of a question; after each test the books are proved."""

import pytest

from lockpin_core.ledger.verify import verify
from lockpin_core.ledger.watchers import Watcher
from tests.ledger.desk import SqliteDesk
from tests.ledger.questions_contract import AttemptsContract, QuestionsContract


class WatchedDesk(SqliteDesk):
    def open(self, **more):
        return super().open(ticks=lambda: 0.0, **more)

    def watch(self):
        self.watcher = Watcher(self.path, "eye", lambda: 0.0).__enter__()

    def stop_watching(self):
        self.watcher.__exit__(None, None, None)


@pytest.fixture
def desk(tmp_path):
    made = WatchedDesk(tmp_path)
    yield made
    assert verify(made.path).wrong is None
    made.close()
    assert verify(made.path).wrong is None
    assert made.query("SELECT * FROM allowances") == []


class TestQuestions(QuestionsContract):
    pass


class TestAttempts(AttemptsContract):
    pass

import pytest

from tests.ledger.desk import MemoryDesk
from tests.ledger.questions_contract import AttemptsContract, QuestionsContract


class WatchedDesk(MemoryDesk):
    def watch(self):
        self.ledger.watchers = 1

    def stop_watching(self):
        self.ledger.watchers = 0


@pytest.fixture
def desk():
    return WatchedDesk()


class TestMemoryQuestions(QuestionsContract):
    pass


class TestMemoryAttempts(AttemptsContract):
    pass

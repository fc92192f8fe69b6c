import pytest

from tests.ledger.contract import LedgerContract
from tests.ledger.desk import MemoryDesk
from tests.ledger.waiting_contract import WaitingContract


@pytest.fixture
def desk():
    return MemoryDesk()


class TestMemory(LedgerContract):
    pass


class TestMemoryWaiting(WaitingContract):
    pass

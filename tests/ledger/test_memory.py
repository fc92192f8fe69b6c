import pytest

from tests.ledger.alerts_contract import AlertsContract
from tests.ledger.contract import LedgerContract
from tests.ledger.desk import MemoryDesk
from tests.ledger.key_contract import KeyContract
from tests.ledger.reserve_contract import ReserveContract
from tests.ledger.scopes_contract import ScopesContract
from tests.ledger.waiting_contract import WaitingContract


@pytest.fixture
def desk():
    return MemoryDesk()


class TestMemory(LedgerContract):
    pass


class TestMemoryWaiting(WaitingContract):
    pass


class TestMemoryReserve(ReserveContract):
    pass


class TestMemoryKeys(KeyContract):
    pass


class TestMemoryScopes(ScopesContract):
    pass


class TestMemoryAlerts(AlertsContract):
    pass

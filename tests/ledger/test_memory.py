import pytest

from tests.ledger.contract import LedgerContract
from tests.ledger.desk import MemoryDesk
from tests.ledger.model import machine_of


@pytest.fixture
def desk():
    return MemoryDesk()


class TestMemory(LedgerContract):
    pass


TestMemoryMachine = machine_of(MemoryDesk)

import pytest

from tests.ledger.desk import MemoryDesk
from tests.ledger.pauses_contract import PausesContract


@pytest.fixture
def desk():
    return MemoryDesk()


class TestMemoryPauses(PausesContract):
    pass

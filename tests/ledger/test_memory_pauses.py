import pytest

from tests.ledger.desk import MemoryDesk
from tests.ledger.pauses_contract import PausesContract
from tests.ledger.pauses_history import PausesHistory


@pytest.fixture
def desk():
    return MemoryDesk()


class TestMemoryPauses(PausesContract):
    pass


@pytest.mark.parametrize("seed", range(30))
def test_calls_pause_when_a_slow_model_says_so(desk, seed):
    PausesHistory(desk, seed).play(200)

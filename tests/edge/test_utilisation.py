"""One budget used up by 20 agents over real sockets, in short: $4, of which the longest call needs a twentieth at least.

What the provider billed is what the ledger has, nothing passes the limit, and nobody is refused whose call would fit.
"""

from functools import partial

import processes
import pytest

from tests.sim import live


@pytest.mark.timeout(300)  # of 20 s of work, on a machine that others may use
def test_a_budget_is_used_up_over_real_sockets(tmp_path):
    fleet, _ = live.use_up(partial(processes.proxy, tmp_path, kind="up"), 4)

    assert fleet.wrong == []
    assert fleet.false == 0
    assert sum(fleet.provider.bills) <= fleet.budget
    assert fleet.calls == len(fleet.provider.bills)
    assert fleet.at_final is not None and fleet.at_final * 100 >= fleet.budget * 95
    assert fleet.provider.lowered > 0

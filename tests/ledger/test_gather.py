from lockpin_core.ledger.gather import MOST, QUIET_TURNS, Gatherer


class Loop:
    """Turns of an event loop: actions asked for in one run in the next."""

    def __init__(self):
        self.due, self.works = [], True

    def soon(self, action):
        if self.works:
            self.due.append(action)
        return self.works

    def turn(self):
        due, self.due = self.due, []
        for action in due:
            action()


def gatherer():
    loop, given = Loop(), []
    return loop, Gatherer(loop.soon, given.append), given


def test_what_comes_in_the_same_turns_is_given_together():
    loop, gathering, given = gatherer()
    for number in range(3):
        assert gathering.add(number)
        loop.turn()

    for _ in range(QUIET_TURNS):
        loop.turn()

    assert given == [[0, 1, 2]]
    assert loop.due == []


def test_a_loop_that_is_never_quiet_does_not_hold_anything_back_for_long():
    loop, gathering, given = gatherer()

    for number in range(MOST):
        gathering.add(number)
    loop.turn()

    assert len(given) == 1


def test_another_thread_or_an_ended_loop_is_told_to_hand_over_itself():
    loop, gathering, given = gatherer()
    loop.works = False

    assert not gathering.add(1)
    assert given == []


def test_what_waits_when_the_loop_ends_is_handed_over():
    loop, gathering, given = gatherer()
    gathering.add(1)
    loop.works = False

    loop.turn()

    assert given == [[1]]


def test_release_gives_what_there_is_once():
    loop, gathering, given = gatherer()
    gathering.add(1)

    gathering.release()
    gathering.release()
    loop.turn()

    assert given == [[1]]

from datetime import timedelta

from lockpin_core.clock import monotonic_s, new_id, utc_now


def test_the_wall_clock_is_aware_utc():
    assert utc_now().utcoffset() == timedelta(0)


def test_durations_come_from_a_clock_that_never_steps_back():
    assert monotonic_s() <= monotonic_s()


def test_ids_have_26_plain_characters_and_differ():
    ids = {new_id() for _ in range(1000)}

    assert len(ids) == 1000
    assert {len(one) for one in ids} == {26}
    assert set("".join(ids)) <= set("0123456789abcdefghjkmnpqrstvwxyz")


def test_ids_begin_with_their_millisecond_so_that_they_sort_by_time():
    before = utc_now()
    first = new_id()
    alphabet = "0123456789abcdefghjkmnpqrstvwxyz"
    number = 0
    for char in first:
        number = number << 5 | alphabet.index(char)

    milliseconds = number >> 82
    assert before.timestamp() * 1000 - 1 <= milliseconds <= utc_now().timestamp() * 1000

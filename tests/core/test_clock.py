from datetime import timedelta

from lockpin_core.clock import base32, monotonic_s, new_id, random_bytes, utc_now


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


def test_numbers_are_written_in_digits_of_five_bits():
    assert (base32(0, 2), base32(31, 2), base32(32, 2), base32(1023, 2), base32(10, 1)) == ("00", "0z", "10", "zz", "a")


def test_chance_gives_as_many_bytes_as_are_asked_for_and_never_the_same():
    assert {len(random_bytes(32)) for _ in range(100)} == {32}
    assert len({random_bytes(32) for _ in range(100)}) == 100

import threading

import pytest

from lockpin_core.errors import CommandError
from lockpin_core.provider_keys import ProviderKeys, is_sendable

ENV = {"openai": "OPENAI_API_KEY", "gemini": "GOOGLE"}


class Drawer:
    """A keyring in a dict."""

    def __init__(self, **keys):
        self.keys, self.asked, self.fault = keys, [], None

    def get(self, provider):
        self.asked.append((provider, threading.current_thread()))
        if self.fault is not None:
            raise CommandError(self.fault)
        return self.keys.get(provider)


def test_variable_wins_over_the_keyring_which_is_not_asked_then():
    drawer = Drawer(openai="kept-1", anthropic="kept-2")
    keys = ProviderKeys(ENV, {"OPENAI_API_KEY": " sk-1\n"}, drawer)

    keys.read(["openai", "anthropic", "gemini"])

    assert (keys.of("openai"), keys.of("anthropic"), keys.of("gemini"), keys.of("xai")) == (
        "sk-1",
        "kept-2",
        None,
        None,
    )
    assert keys.source("openai") == "environment: OPENAI_API_KEY"
    assert (keys.source("anthropic"), keys.source("gemini")) == ("keyring", None)
    assert [name for name, _ in drawer.asked] == ["anthropic", "gemini"]


def test_variable_that_nobody_named_is_not_looked_at():
    keys = ProviderKeys({}, {"OPENAI_API_KEY": "sk-1", "": "sk-2"})

    keys.read(["openai"])
    assert keys.of("openai") is None


@pytest.mark.parametrize("value", ["", "  ", "two words", "a\nb", "\x00", "é", "x" * 4097])
def test_variable_that_holds_no_key_is_as_good_as_none(value):
    keys = ProviderKeys(ENV, {"OPENAI_API_KEY": value}, Drawer(openai="kept"))
    keys.read(["openai"])

    assert keys.of("openai") == "kept"
    assert not is_sendable(value)


def test_what_the_keyring_has_and_no_header_may_hold_is_left_out():
    keys = ProviderKeys({}, {}, Drawer(openai="a\r\nb"))
    keys.read(["openai"])

    assert keys.of("openai") is None


def test_key_is_given_without_asking_the_keyring():
    drawer = Drawer(openai="kept")
    keys = ProviderKeys({}, {}, drawer)

    assert keys.of("openai") is None
    assert drawer.asked == []
    keys.read(["openai"])
    assert [keys.of("openai") for _ in range(3)] == ["kept"] * 3
    assert len(drawer.asked) == 1


def test_keyring_that_fails_later_leaves_what_was_read_and_says_why():
    drawer = Drawer(openai="kept")
    keys = ProviderKeys({}, {}, drawer)
    keys.read(["openai"])
    drawer.fault = "the keyring is locked"

    keys.read(["openai"])

    assert (keys.of("openai"), keys.fault) == ("kept", "the keyring is locked")
    drawer.fault, drawer.keys = None, {}
    keys.read(["openai"])
    assert (keys.of("openai"), keys.fault) == (None, None)


def test_nothing_of_it_shows_a_key():
    keys = ProviderKeys(ENV, {"OPENAI_API_KEY": "sk-hidden"}, Drawer(anthropic="kept-hidden"))
    keys.read(["anthropic"])

    assert "hidden" not in f"{keys!r} {keys} {keys.source('openai')} {keys.source('anthropic')} {keys.fault}"

import types

import pytest

from lockpin_core.errors import CommandError
from lockpin_core.provider_keyring import Keyring


class Errors:
    class KeyringError(Exception):
        pass

    class KeyringLocked(KeyringError):
        pass


class Library:
    """The library's own functions, over a dict."""

    def __init__(self, backend=None, error=None):
        self.kept, self.backend, self.error = {}, backend or types.SimpleNamespace(name="Test"), error

    def get_keyring(self):
        return self.backend

    def get_password(self, service, name):
        self.check()
        return self.kept.get((service, name))

    def set_password(self, service, name, password):
        self.check()
        self.kept[service, name] = password

    def delete_password(self, service, name):
        self.check()
        del self.kept[service, name]

    def check(self):
        if self.error is not None:
            raise self.error


def opened(library):
    return Keyring({"keyring": library, "keyring.errors": Errors}.__getitem__)


def backend(module, name):
    return type(name, (), {"__module__": module})()


def test_keys_are_kept_under_their_providers_name():
    library = Library()
    keyring = opened(library)

    keyring.put("openai", "sk-1")

    assert library.kept == {("lockpin", "openai"): "sk-1"}
    assert (keyring.get("openai"), keyring.get("xai"), keyring.name) == ("sk-1", None, "Test")
    assert (keyring.remove("openai"), keyring.remove("openai")) == (True, False)
    assert library.kept == {}


def test_library_that_is_missing_is_one_line_with_the_way_out():
    def load(name):
        raise ModuleNotFoundError(name)

    with pytest.raises(
        CommandError, match=r"not installed: pip install 'lockpin\[keyring\]', or name the key's variable"
    ):
        Keyring(load)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (backend("keyring.backends.fail", "Keyring"), "this system has none that can be used"),
        (backend("keyring.backends.null", "Keyring"), "Keyring does not keep secrets secret"),
        (backend("keyrings.alt.file", "PlaintextKeyring"), "PlaintextKeyring does not keep secrets secret"),
        (
            types.SimpleNamespace(backends=[backend("keyrings.alt.file", "PlaintextKeyring")]),
            "PlaintextKeyring does not keep secrets secret",
        ),
    ],
)
def test_backend_that_keeps_nothing_or_hides_nothing_is_refused(found, said):
    with pytest.raises(CommandError, match=f"no keyring: {said}"):
        opened(Library(found))


def test_of_several_backends_the_first_is_the_one_that_counts():
    several = types.SimpleNamespace(
        name="chain",
        backends=[backend("keyring.backends.macOS", "Keyring"), backend("keyrings.alt.file", "PlaintextKeyring")],
    )

    assert opened(Library(several)).name == "Keyring"


def test_backend_that_was_named_and_is_not_there_is_one_line():
    library = Library()
    library.get_keyring = lambda: (_ for _ in ()).throw(ModuleNotFoundError("no.such"))

    with pytest.raises(CommandError, match=r"the keyring cannot be opened \(ModuleNotFoundError\); put that right, or"):
        opened(library)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Errors.KeyringLocked("sk-hidden"), "the keyring is locked; unlock it, or name the"),
        (Errors.KeyringError("sk-hidden"), r"the keyring cannot be \w+ \(KeyringError\); put that right, or name the"),
        (OSError("sk-hidden"), r"the keyring cannot be \w+ \(OSError\)"),
        (RuntimeError("sk-hidden"), r"the keyring cannot be \w+ \(RuntimeError\)"),
        (AttributeError("sk-hidden"), r"the keyring cannot be \w+ \(AttributeError\)"),
    ],
)
@pytest.mark.parametrize(
    "do", [lambda k: k.get("openai"), lambda k: k.put("openai", "sk-hidden"), lambda k: k.remove("openai")]
)
def test_fault_of_the_keyring_is_one_line_without_its_words(error, said, do):
    with pytest.raises(CommandError, match=said) as found:
        do(opened(Library(error=error)))

    assert "hidden" not in str(found.value)
    assert found.value.__cause__ is None and found.value.__suppress_context__

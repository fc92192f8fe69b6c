import pytest

from lockpin_cli.authority import AUTHORITY, BUNDLE, public_stores, trust
from lockpin_core.errors import LockpinError


def certificate(text: str) -> str:
    return f"-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----"


def test_bundle_is_our_certificate_and_each_other_once(tmp_path):
    (tmp_path / AUTHORITY).write_text(certificate("own"))
    (tmp_path / "a.pem").write_text(f"# A\n{certificate('one')}\n{certificate('two')}\n")
    (tmp_path / "b.pem").write_text(certificate("two"))

    found = trust(tmp_path, [tmp_path / "a.pem", tmp_path / "b.pem", tmp_path / "absent.pem"])

    assert found.bundle.read_text() == "\n".join(map(certificate, ("own", "one", "two"))) + "\n"


def test_a_key_beside_a_certificate_is_left_out(tmp_path):
    (tmp_path / AUTHORITY).write_text(
        f"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----\n{certificate('own')}"
    )

    assert "PRIVATE" not in trust(tmp_path, []).bundle.read_text()


def test_bundle_of_an_earlier_certificate_is_replaced(tmp_path):
    (tmp_path / AUTHORITY).write_text(certificate("new"))
    (tmp_path / BUNDLE).write_text(certificate("old"))

    trust(tmp_path, [tmp_path / BUNDLE])

    assert (tmp_path / BUNDLE).read_text() == certificate("new") + "\n"


def test_unchanged_bundle_is_not_written_again(tmp_path):
    (tmp_path / AUTHORITY).write_text(certificate("own"))
    first = trust(tmp_path, []).bundle.stat().st_ino

    assert trust(tmp_path, []).bundle.stat().st_ino == first


def test_file_without_a_certificate_is_one_clear_line(tmp_path):
    (tmp_path / AUTHORITY).write_text("nothing")

    with pytest.raises(LockpinError, match="holds no certificate; remove it"):
        trust(tmp_path, [])


def test_unreadable_certificate_is_one_clear_line(tmp_path):
    (tmp_path / AUTHORITY).mkdir()

    with pytest.raises(LockpinError, match=f"{AUTHORITY}: Is a directory"):
        trust(tmp_path, [])


def test_public_certificates_are_found():
    assert public_stores()[0].is_file()

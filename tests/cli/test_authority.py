import pytest

from lockpin_cli.authority import AUTHORITY, BUNDLE, NODE_BUNDLE, stores, trust
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
    assert stores({})[0].is_file()


def test_stores_that_clients_use_now_are_kept():
    found = stores({"REQUESTS_CA_BUNDLE": "/r", "CURL_CA_BUNDLE": "/c", "AWS_CA_BUNDLE": "", "SSL_CERT_DIR": "/d:/e"})

    assert [str(path) for path in found][-4:] == ["/r", "/c", "/d", "/e"]


def test_folder_of_certificates_is_read_whole(tmp_path):
    (tmp_path / AUTHORITY).write_text(certificate("own"))
    (tmp_path / "d" / "sub").mkdir(parents=True)
    (tmp_path / "d" / "a.pem").write_text(certificate("a"))
    (tmp_path / "d" / "b.0").write_text(certificate("b"))

    assert trust(tmp_path, [tmp_path / "d"]).bundle.read_text() == "\n".join(map(certificate, ("own", "a", "b"))) + "\n"


def test_bundle_that_is_in_use_keeps_what_it_holds_but_an_earlier_certificate_of_ours(tmp_path):
    (tmp_path / AUTHORITY).write_text(certificate("new"))
    (tmp_path / BUNDLE).write_text(certificate("old") + certificate("company"))

    found = trust(tmp_path, [tmp_path / BUNDLE])

    assert found.bundle.read_text() == "\n".join(map(certificate, ("new", "company"))) + "\n"


def test_node_gets_the_bare_certificate_where_it_adds_nothing_of_the_users(tmp_path):
    (tmp_path / AUTHORITY).write_text(certificate("own"))
    (tmp_path / "empty.pem").write_text("")

    for node in (None, tmp_path / AUTHORITY, tmp_path / "absent.pem", tmp_path / "empty.pem", tmp_path / BUNDLE):
        assert trust(tmp_path, [], node).node == tmp_path / AUTHORITY
    assert not (tmp_path / NODE_BUNDLE).exists()


def test_node_keeps_the_users_certificates_also_the_second_time(tmp_path):
    (tmp_path / AUTHORITY).write_text(certificate("own"))
    (tmp_path / "mine.pem").write_text(certificate("mine"))
    both = "\n".join(map(certificate, ("own", "mine"))) + "\n"

    first = trust(tmp_path, [], tmp_path / "mine.pem")
    second = trust(tmp_path, [], first.node)

    assert first.node == second.node == tmp_path / NODE_BUNDLE
    assert second.node.read_text() == both
    assert "mine" not in second.bundle.read_text()  # Node alone trusted it

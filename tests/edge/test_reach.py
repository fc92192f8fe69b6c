"""Which hosts a team's proxy leads to: the public network, or what is listed, and nobody's own network."""

import pytest
from lockpin_addons.reach import is_listed, is_public, is_trusted

PUBLIC = ("93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:8.8.8.8", "64:ff9b::808:808")
OWN = (
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::1",
    "example.com", "",
)  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_public(address):
    assert is_public(address)


@pytest.mark.parametrize("address", OWN)
def test_an_address_of_ones_own_network_is_not(address):
    assert not is_public(address)


@pytest.mark.parametrize(
    ("host", "allowed", "listed", "trusted"),
    [
        ("github.com", (), True, False),
        ("github.com", ("github.com",), True, True),
        ("GitHub.com.", ("github.com",), True, True),
        ("api.github.com", ("github.com",), False, False),
        ("api.github.com", ("*.github.com",), True, False),
        ("a.b.github.com", ("*.github.com",), False, False),
        ("github.com.evil.test", ("github.com",), False, False),
        ("githubxcom", ("github.com",), False, False),
        ("10.1.2.3", ("10.1.2.3",), True, True),
        ("git.corp", ("gitlab.com", "git.corp"), True, True),
    ],
)
def test_a_host_is_judged_by_its_canonical_name(host, allowed, listed, trusted):
    assert (is_listed(host, allowed), is_trusted(host, allowed)) == (listed, trusted)

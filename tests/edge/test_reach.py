"""Which hosts a team's proxy leads to: the public network, or what is listed, and nobody's own network."""

import pytest
from lockpin_addons.reach import is_listed, is_public, is_trusted

PUBLIC = (
    "93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "::ffff:8.8.8.8", "64:ff9b::808:808",
    "2a00:1450:4001:82b::200e", "2001:4860:4860::8888", "2002:808:808::1", "192.0.1.1",
)  # fmt: skip
OWN = (
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "224.0.0.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a00:1", "2002:7f00:1::", "2002:a00:1::1",
    "::127.0.0.1", "::a00:1", "::ffff:0:127.0.0.1", "::ffff:0:10.0.0.1", "fec0::1", "feff::1",  # compatible, translated, site
    "64:ff9b:1::808:808", "64:ff9b:1::a00:1", "100::1", "5f00::1", "4000::1", "e000::1",  # local, discard, not given out
    "2001::808:808", "2001:0:a00:1:0:ffff:f7f7:f7f7", "2001:1::1", "2001:2::1", "2001:db8::1", "3fff::1",
    "192.0.0.9", "192.0.0.192", "192.88.99.1", "168.63.129.16", "198.18.0.1", "2002:a83f:8110::1", "::ffff:168.63.129.16",
    "2606:2800:220:1:0:5efe:a00:1", "2606:2800:220:1:200:5efe:c0a8:101", "2606::0:5efe:7f00:1%eth0",  # ISATAP
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

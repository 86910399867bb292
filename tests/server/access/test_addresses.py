"""Whose address counts: the peer's, or the last one that a proxy of the settings names."""

from __future__ import annotations

import pytest

from veil.errors import InputError
from veil.server.access.addresses import NOWHERE, Addresses, networks_of
from veil.server.settings import ServerSettings

PROXIES = "127.0.0.1 10.0.0.0/8 2001:db8:ffff::/48"


@pytest.mark.parametrize(
    ("peer", "said", "holder"),
    [
        ("192.0.2.1", [], "192.0.2.1"),
        ("192.0.2.1", ["198.51.100.9"], "192.0.2.1"),  # not a proxy: a forged header changes nothing
        ("127.0.0.1", [], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.9"], "198.51.100.9"),
        ("127.0.0.1", ["203.0.113.5, 198.51.100.9"], "198.51.100.9"),  # what stands before it, the client said
        ("127.0.0.1", ["203.0.113.5", "198.51.100.9"], "198.51.100.9"),
        ("127.0.0.1", ["203.0.113.5, 198.51.100.9, 10.1.2.3"], "198.51.100.9"),  # a second proxy
        ("127.0.0.1", ["10.9.9.9, 10.1.2.3"], "10.9.9.9"),
        ("127.0.0.1", ["198.51.100.9, unknown"], "127.0.0.1"),
        ("127.0.0.1", ["198.51.100.9:4711"], "198.51.100.9"),
        ("127.0.0.1", ["[2001:db8:1:2:3:4:5:6]:4711"], "2001:db8:1:2::/64"),
        ("127.0.0.1", ["2001:db8:1:2:ffff::1"], "2001:db8:1:2::/64"),
        ("2001:db8:1:2::7", [], "2001:db8:1:2::/64"),
        ("2001:db8:ffff::1", ["198.51.100.9"], "198.51.100.9"),
        ("::ffff:127.0.0.1", ["198.51.100.9"], "198.51.100.9"),
        ("::ffff:192.0.2.1", [], "192.0.2.1"),
        ("fe80::1%eth0", [], "fe80::/64"),
        ("", [], NOWHERE),
    ],
)
def test_the_address_is_the_last_that_no_proxy_has(peer: str, said: list[str], holder: str) -> None:
    """Planted truth."""
    headers = [(b"x-forwarded-for", text.encode()) for text in said]
    assert Addresses(networks_of(PROXIES)).holder(peer, headers) == holder
    assert Addresses(()).holder(peer, headers) == Addresses(()).holder(peer, ())


def test_proxies_that_are_no_networks_are_refused() -> None:
    for wrong in ("localhost", "10.0.0.1/8", "127.0.0.1,10.0.0.1"):
        with pytest.raises(InputError, match="proxies"):
            ServerSettings(proxies=wrong)
    assert ServerSettings(proxies=PROXIES).proxies == PROXIES

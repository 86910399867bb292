"""Whose address a request counts for: the peer's, or what a proxy that the settings name says of its client."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from veil.errors import InputError

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
# One customer of IPv6 has a network of this many bits, and 2^64 addresses in it (RFC 6177).
_CUSTOMER_BITS = 64
NOWHERE = "nowhere"


def networks_of(text: str) -> tuple[Network, ...]:
    """Addresses and networks from a text with blanks between. Raises InputError for what is none."""
    networks = []
    for word in text.split():
        try:
            networks.append(ipaddress.ip_network(word))
        except ValueError:
            raise InputError(f"proxies takes addresses and networks such as 127.0.0.1 10.0.0.0/8, got {word!r}") from None
    return tuple(networks)


class Addresses:
    """Addresses of clients, which are held in memory for their shares and written nowhere.

    `proxies` are networks whose word in `X-Forwarded-For` is taken for the address of who asked them.
    """

    def __init__(self, proxies: Sequence[Network]) -> None:
        self._proxies = tuple(proxies)

    def is_proxy(self, peer: str) -> bool:
        """Whether a peer is one of the proxies."""
        address = _read(peer)
        return address is not None and self._trusts(address)

    def holder(self, peer: str, headers: Sequence[tuple[bytes, bytes]]) -> str:
        """Who a request counts for: an IPv4 address, or a network of IPv6.

        Each proxy appends whom it heard; so the last address that is no proxy's counts, and what stands before it was said by
        that client itself. A text that is no address ends the search at the proxy that wrote it.
        """
        client = _read(peer)
        if client is None:
            return NOWHERE
        if self._trusts(client):
            forwarded = b",".join(value for name, value in headers if name == b"x-forwarded-for").decode("latin-1")
            for text in reversed(forwarded.split(",")):
                address = _read(text.strip())
                if address is None:
                    break
                client = address
                if not self._trusts(address):
                    break
        if client.version == 6:
            return str(ipaddress.ip_network((client, _CUSTOMER_BITS), strict=False))
        return str(client)

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._proxies)


def _read(text: str) -> Address | None:
    """An address, with or without a port; that of IPv4 where it is written as IPv6. None for another text."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address

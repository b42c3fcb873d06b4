"""Where deliveries may go: public addresses only, unless the platform allows others. Pure.

A tenant chooses the URL, and workers often stand where they reach much that is not public: metadata
services, databases, admin pages. So a URL is checked when it is set, and the addresses of its host
before each connection, which then goes to exactly these addresses.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from urllib.parse import urlsplit

import msgspec

from holdfast.core.edge_bounds import WEBHOOK_ALLOW_MAX, WEBHOOK_URL_MAX
from holdfast.core.errors import ConfigError, InvalidInput

ALLOW_VARIABLE = "HOLDFAST_WEBHOOKS_ALLOW"
"""Networks and hosts, separated by commas, besides those of the setting `webhooks_allow`."""
PORTS = frozenset({80, 443})
"""The ports below 1024 that may be called: behind others are mail, files and shells."""

Address = IPv4Address | IPv6Address

_REFUSED_4 = [
    ip_network(one)
    for one in (
        "0.0.0.0/8",  # This network, and the unspecified address.
        "10.0.0.0/8",
        "100.64.0.0/10",  # Carrier-grade NAT; some clouds have their metadata there.
        "127.0.0.0/8",
        "168.63.129.16/32",  # A public address that is the metadata service of a cloud.
        "169.254.0.0/16",  # Link-local, with the metadata services of most clouds.
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.31.196.0/24",
        "192.52.193.0/24",
        "192.88.99.0/24",  # Relays of 6to4.
        "192.168.0.0/16",
        "192.175.48.0/24",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # Multicast.
        "240.0.0.0/4",  # Reserved, and broadcast.
    )
]
_GLOBAL_6 = IPv6Network("2000::/3")
"""All other IPv6 addresses are not public: loopback, link-local, unique local, multicast, mapped
and compatible IPv4 (`::ffff:0:0/96`, `::/96`), NAT64 (`64:ff9b::/96`, `64:ff9b:1::/48`)."""
_REFUSED_6 = [
    ip_network(one)
    for one in (
        "2001::/23",  # Teredo, ORCHID and other protocols.
        "2001:db8::/32",
        "2002::/16",  # 6to4: contains any IPv4 address.
        "2620:4f:8000::/48",
        "3fff::/20",
    )
]


class Allowed(msgspec.Struct, frozen=True):
    """What the platform allows besides public addresses."""

    networks: tuple[str, ...] = ()
    hosts: frozenset[str] = frozenset()

    def may_address(self, address: Address) -> bool:
        """Whether deliveries may go to this address."""
        if any(address in ip_network(one) for one in self.networks):
            return True
        return is_public(address)

    def may_host(self, host: str) -> bool:
        """Whether the platform allows the host whatever its addresses are."""
        return host in self.hosts


def allowed(entries: Iterable[str]) -> Allowed:
    """What the setting and the environment allow. Raises ConfigError for what is neither a network
    nor a host.
    """
    more = os.environ.get(ALLOW_VARIABLE, "").split(",")
    found = [one.strip() for one in (*entries, *more) if one.strip()]
    return parsed(found)


def parsed(entries: Iterable[str]) -> Allowed:
    """The entries as networks and hosts."""
    networks: list[str] = []
    hosts: set[str] = set()
    for number, entry in enumerate(entries):
        if number >= WEBHOOK_ALLOW_MAX:
            raise _wrong(f"has more than {WEBHOOK_ALLOW_MAX} entries")
        try:
            networks.append(str(ip_network(entry)))
        except ValueError as error:
            if "/" in entry or not entry.isascii() or not entry.strip(".") or " " in entry:
                raise _wrong(f"{entry!r} is neither a network nor a host: {error}") from None
            hosts.add(_plain(entry))
    return Allowed(tuple(networks), frozenset(hosts))


def _wrong(why: str) -> ConfigError:
    return ConfigError(field="webhooks_allow", why=why)


def is_public(address: Address) -> bool:
    """Whether the address is one of the public internet."""
    if isinstance(address, IPv4Address):
        return address.is_global and not any(address in one for one in _REFUSED_4)
    if address.scope_id is not None or address not in _GLOBAL_6:
        return False
    return address.is_global and not any(address in one for one in _REFUSED_6)


class Target(msgspec.Struct, frozen=True):
    """The parts of a checked URL that a connection needs."""

    host: str
    port: int
    literal: str | None
    """The address, if the host is one."""


def target_of(url: object, allow: Allowed) -> Target:
    """Where a URL leads. Raises InvalidInput, which never shows more of it than host and port."""
    if not isinstance(url, str):
        raise refused(f"must be text, not {type(url).__name__}")
    if len(url) > WEBHOOK_URL_MAX:
        raise refused(f"has {len(url)} characters, at most {WEBHOOK_URL_MAX}")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise refused("has characters that a URL cannot have; encode them")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise refused(str(error)) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise refused("must be https://host/path, or http://")
    if "@" in parts.netloc:
        raise refused("must not contain a user or password; use headers=")
    if "#" in url:
        raise refused("must not have a fragment")
    host = _plain(parts.hostname)
    literal = _literal(host)
    # 127.1, 0x7f.1 and 2130706433 are addresses to some resolvers, and names to others.
    odd = literal is None and re.fullmatch(r"[0-9]+|0x[0-9a-f]*", host.rpartition(".")[2])
    if not host or "%" in host or odd:
        raise refused("has a host that is neither a name nor an address as usually written")
    port = port if port is not None else (443 if parts.scheme == "https" else 80)
    if allow.may_host(host):
        return Target(host, port, literal)
    open_port = literal is not None and not is_public(ip_address(literal))
    if not (port in PORTS or port >= 1024 or (open_port and _may(literal, allow))):
        raise refused(f"has the port {port}; below 1024 only 80 and 443 may be called")
    if literal is not None and not _may(literal, allow):
        raise not_public(host)
    return Target(host, port, literal)


def _may(literal: str | None, allow: Allowed) -> bool:
    return literal is not None and allow.may_address(ip_address(literal))


def check_addresses(target: Target, addresses: Iterable[str], allow: Allowed) -> list[str]:
    """The addresses of the host, each of which must be allowed: a name that leads to a public and
    to a private address is refused, because only an attacker has one.
    """
    found = []
    for one in addresses:
        try:
            address = ip_address(one)
        except ValueError:
            raise not_public(target.host) from None
        if not (allow.may_host(target.host) or allow.may_address(address)):
            raise not_public(target.host)
        found.append(one)
    return found


def _plain(host: str) -> str:
    """The host in lower case, without the dot at the end that means the same host."""
    return host.lower().removesuffix(".")


def _literal(host: str) -> str | None:
    try:
        return str(ip_address(host))
    except ValueError:
        return None


def refused(why: str) -> InvalidInput:
    return InvalidInput(field="url", why=why)


def not_public(host: str) -> InvalidInput:
    """It does not name the address: the answer must not map the network behind the workers."""
    why = f"{host} is no public address; the platform may allow it by webhooks_allow"
    return refused(why)

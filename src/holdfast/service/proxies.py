"""Whose word counts on how a browser came: proxies that end the TLS before this service."""

from __future__ import annotations

import ipaddress
import os
from functools import lru_cache

from holdfast.errors import ConfigError

VARIABLE = "FORWARDED_ALLOW_IPS"
"""Addresses and networks of proxies, separated by commas; `*` is everybody. As other servers."""
LOCAL = "127.0.0.1, ::1"
SCHEMES = frozenset({"http", "https"})


class Proxies:
    """Those that are believed."""

    def __init__(self, said: str) -> None:
        """ConfigError for what is no address."""
        words = [word.strip() for word in said.split(",") if word.strip()]
        self._everybody = "*" in words
        try:
            self._networks = [ipaddress.ip_network(word) for word in words if word != "*"]
        except ValueError as error:
            raise ConfigError(field=VARIABLE, why=str(error)) from None
        self._trusted = lru_cache(1000)(self._within)

    @classmethod
    def of_environment(cls) -> Proxies:
        return cls(os.environ.get(VARIABLE, LOCAL))

    def scheme(self, client: str | None, forwarded: str) -> str | None:
        """The scheme that X-Forwarded-Proto names: the browser's, which stands first. None where
        it is not to be believed, or is none.
        """
        if not self._everybody and (client is None or not self._trusted(client)):
            return None
        scheme = forwarded.partition(",")[0].strip().lower()
        return scheme if scheme in SCHEMES else None

    def _within(self, client: str) -> bool:
        try:
            address = ipaddress.ip_address(client)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)

"""Trusted proxies, which end TLS and report the scheme that the browser used."""

from __future__ import annotations

import ipaddress
import os
from functools import lru_cache

from holdfast.core.errors import ConfigError

VARIABLE = "FORWARDED_ALLOW_IPS"
"""Environment variable with trusted addresses and networks, separated by commas; `*` is all."""
LOCAL = "127.0.0.1, ::1"
SCHEMES = frozenset({"http", "https"})


class Proxies:
    """The trusted proxies."""

    def __init__(self, said: str) -> None:
        """Raises ConfigError for an invalid address."""
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
        """The scheme that the browser used: the first value of X-Forwarded-Proto. None if the
        sender is not trusted or the value is not a scheme.
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

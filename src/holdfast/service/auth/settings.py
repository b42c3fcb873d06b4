"""The settings of authentication: one frozen value, checked when it is created."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.core.errors import ConfigError, did_you_mean
from holdfast.service.auth.claims import TENANT_PATTERN

SYMMETRIC = "HS256"
ALGORITHMS = (SYMMETRIC, "RS256", "ES256", "EdDSA")
LEEWAY_S_MAX = 600.0


class Mode(StrEnum):
    NONE = "none"
    KEYS = "keys"
    JWT = "jwt"


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Contains no secrets, which are in the files that it names."""

    auth: Mode = Mode.NONE
    local_only: bool = True
    """Mode none accepts only requests to the names of this machine."""
    keys: str | None = None
    """Mode keys: the key file."""
    jwt_key: str | None = None
    """A file with a secret or a public key for `jwt_alg`."""
    jwt_alg: str | None = None
    jwks: str | None = None
    """URL of the issuer's key set, instead of `jwt_key`."""
    jwt_issuer: str | None = None
    jwt_audience: tuple[str, ...] = ()
    """Accepted audiences: a token must have one of them."""
    jwt_leeway_s: float = 30.0
    """The allowed clock difference to the issuer."""
    tenant_pattern: str = TENANT_PATTERN
    jwt_sub_tenant: bool = False
    """Use `sub` as the tenant of a token that names none."""

    @classmethod
    def of(cls, **given: Any) -> AuthSettings:
        """The checked settings; None means not given. Without `auth` the mode follows from the
        others.
        """
        values = {name: value for name, value in given.items() if value is not None}
        for name in values:
            if name not in cls.__struct_fields__:
                hint = did_you_mean(name, cls.__struct_fields__)
                raise ConfigError(field=name, why=f"there is no such setting.{hint}")
        if "auth" not in values:
            values["auth"] = _implied(values)
        try:
            made = msgspec.convert(values, cls)
        except msgspec.ValidationError as error:
            why, _, place = str(error).partition(" - at `$.")
            raise ConfigError(field=place.rstrip("`") or "auth", why=why) from None
        return made.checked()

    def checked(self) -> AuthSettings:
        for mode, names in _OF_MODE.items():
            for name in names:
                if getattr(self, name) and self.auth is not mode:
                    why = f"is an option of mode {mode}, but the mode is {self.auth}"
                    raise ConfigError(field=name, why=why)
        if self.auth is Mode.KEYS and not self.keys:
            raise ConfigError(field="keys", why="is required: the key file")
        if self.auth is Mode.JWT:
            self._check_jwt()
        return self

    def _check_jwt(self) -> None:
        if bool(self.jwt_key) == bool(self.jwks):
            raise ConfigError(field="jwt_key", why="give either jwt_key or jwks")
        if self.jwt_key and self.jwt_alg is None:
            raise ConfigError(field="jwt_alg", why="is required: the algorithm of the key")
        if self.jwt_alg is not None and self.jwt_alg not in ALGORITHMS:
            why = f"is {self.jwt_alg!r}, must be one of {', '.join(ALGORITHMS)}"
            raise ConfigError(field="jwt_alg", why=why)
        if not self.jwt_issuer:
            raise ConfigError(
                field="jwt_issuer", why="is required: the issuer of accepted tokens (iss)"
            )
        if not self.jwt_audience or not all(self.jwt_audience):
            raise ConfigError(
                field="jwt_audience", why="is required: an accepted audience of tokens (aud)"
            )
        if not math.isfinite(self.jwt_leeway_s) or not 0 <= self.jwt_leeway_s <= LEEWAY_S_MAX:
            why = f"is {self.jwt_leeway_s:g}, must be 0 to {LEEWAY_S_MAX:g}"
            raise ConfigError(field="jwt_leeway_s", why=why)
        self.pattern()

    def pattern(self) -> re.Pattern[str]:
        try:
            return re.compile(self.tenant_pattern)
        except re.error as error:
            why = f"is not a regular expression: {error}"
            raise ConfigError(field="tenant_pattern", why=why) from None


_OF_MODE = {
    Mode.KEYS: ("keys",),
    Mode.JWT: ("jwt_key", "jwt_alg", "jwks", "jwt_issuer", "jwt_audience", "jwt_sub_tenant"),
}


def _implied(given: dict[str, Any]) -> Mode:
    found = [mode for mode, names in _OF_MODE.items() if any(given.get(name) for name in names)]
    if len(found) > 1:
        raise ConfigError(field="auth", why="there are options of keys and of jwt: set the mode")
    return found[0] if found else Mode.NONE

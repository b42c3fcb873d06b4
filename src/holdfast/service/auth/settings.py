"""How callers are told apart: one frozen value, checked where it is made."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.errors import ConfigError, did_you_mean
from holdfast.service.auth.claims import TENANT_PATTERN

SYMMETRIC = "HS256"
ALGORITHMS = (SYMMETRIC, "RS256", "ES256", "EdDSA")
LEEWAY_S_MAX = 600.0


class Mode(StrEnum):
    NONE = "none"
    KEYS = "keys"
    JWT = "jwt"


class AuthSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Holds no secret: those are in the files it names."""

    auth: Mode = Mode.NONE
    local_only: bool = True
    """Mode none serves only what was sent to this machine's own names."""
    keys: str | None = None
    """The file of mode keys."""
    jwt_key: str | None = None
    """A file with a secret or a public key, for `jwt_alg`."""
    jwt_alg: str | None = None
    jwks: str | None = None
    """Where the issuer's set of keys is; instead of `jwt_key`."""
    jwt_issuer: str | None = None
    jwt_audience: tuple[str, ...] = ()
    """A token must be for one of them."""
    jwt_leeway_s: float = 30.0
    """How far the issuer's clock may be off."""
    tenant_pattern: str = TENANT_PATTERN
    jwt_sub_tenant: bool = False
    """A token without a claim of a tenant is for the one that its `sub` names."""

    @classmethod
    def of(cls, **given: Any) -> AuthSettings:
        """Checked; what is None is not given. Without a mode, the one that the rest is for."""
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
                    why = f"is for mode {mode}, and the mode is {self.auth}"
                    raise ConfigError(field=name, why=why)
        if self.auth is Mode.KEYS and not self.keys:
            raise ConfigError(field="keys", why="name the file of the keys")
        if self.auth is Mode.JWT:
            self._check_jwt()
        return self

    def _check_jwt(self) -> None:
        if bool(self.jwt_key) == bool(self.jwks):
            raise ConfigError(field="jwt_key", why="give either jwt_key or jwks")
        if self.jwt_key and self.jwt_alg is None:
            raise ConfigError(field="jwt_alg", why="name the algorithm that the key is for")
        if self.jwt_alg is not None and self.jwt_alg not in ALGORITHMS:
            why = f"is {self.jwt_alg!r}, must be one of {', '.join(ALGORITHMS)}"
            raise ConfigError(field="jwt_alg", why=why)
        if not self.jwt_issuer:
            raise ConfigError(field="jwt_issuer", why="name whose tokens are accepted (iss)")
        if not self.jwt_audience or not all(self.jwt_audience):
            raise ConfigError(field="jwt_audience", why="name what tokens must be for (aud)")
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
        raise ConfigError(field="auth", why="there are keys and settings of jwt: name the mode")
    return found[0] if found else Mode.NONE

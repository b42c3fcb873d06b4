"""Creates the authentication mode that the settings choose."""

from __future__ import annotations

from holdfast.service.auth.jwks import KeySource, OneKey, key_set, read_key
from holdfast.service.auth.keys import Keys
from holdfast.service.auth.nobody import NoAuth
from holdfast.service.auth.settings import AuthSettings, Mode
from holdfast.service.auth.tokens import TokenRules, Tokens
from holdfast.service.service import Auth


def auth_of(settings: AuthSettings) -> Auth:
    """Reads the files that the settings name. Raises ConfigError if one is not usable."""
    if settings.auth is Mode.KEYS:
        return Keys(settings.keys or "")
    if settings.auth is Mode.JWT:
        return Tokens(_source(settings), _rules(settings))
    return NoAuth(local_only=settings.local_only)


def _source(settings: AuthSettings) -> KeySource:
    if settings.jwks:
        return key_set(settings.jwks, settings.jwt_alg)
    return OneKey(read_key(settings.jwt_key or "", settings.jwt_alg or ""))


def _rules(settings: AuthSettings) -> TokenRules:
    return TokenRules(
        issuer=settings.jwt_issuer or "",
        audience=settings.jwt_audience,
        leeway_s=settings.jwt_leeway_s,
        tenant_pattern=settings.pattern(),
        sub_tenant=settings.jwt_sub_tenant,
    )

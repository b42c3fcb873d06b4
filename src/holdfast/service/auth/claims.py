"""Turns the claims of a verified token into a caller. Pure; refuses ambiguous claims."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from holdfast.core.bounds import QUEUE_MAX, SELECT_MAX, TENANT_MAX, TYPE_MAX, WORKER_MAX
from holdfast.core.check import check_name
from holdfast.core.errors import InvalidInput
from holdfast.service.rights import Caller, Forbidden, Right, rights

TENANT_PATTERN = r"^[a-z][a-z0-9-]{1,62}$"
TENANT_CLAIMS = ("tid", "tenantId", "tenant_id", "organizationId", "organization_id")
"""Claims that name the tenant. `sub` is used only if none is present and the service allows it."""
ALL_TENANTS = "holdfast_all_tenants"
"""If true, and with the right admin: a token for every tenant, which names one by header."""
RIGHT_CLAIMS = ("scope", "scopes", "rights")
RIGHT_PREFIX = "holdfast:"
NAME_CLAIMS = ("sub", "client_id", "azp")

Claims = Mapping[str, Any]

_RIGHTS = {right.value: right for right in Right}


def caller_of(claims: Claims, pattern: re.Pattern[str], *, sub_tenant: bool = False) -> Caller:
    """The caller. Raises Forbidden if the token is genuine but does not name its tenant clearly.

    `sub_tenant`: if no other claim names a tenant, `sub` does. Use it only for an issuer whose
    subjects are tenants; otherwise each user would be a separate tenant.
    """
    named = _rights(claims)
    tenant = _tenant(claims, named, pattern, ("sub",) if sub_tenant else ())
    return Caller(
        name=_name(claims),
        tenant=tenant,
        rights=rights(named, tenant),
        queues=_names(claims, "queues", QUEUE_MAX),
        types=_names(claims, "types", TYPE_MAX),
    )


def _tenant(
    claims: Claims, named_rights: set[Right], pattern: re.Pattern[str], last: tuple[str, ...]
) -> str | None:
    named = [claim for claim in TENANT_CLAIMS if claim in claims]
    every = claims.get(ALL_TENANTS, False)
    if not isinstance(every, bool):
        raise Forbidden(why=f"claim {ALL_TENANTS}: must be true or false")
    if every:
        if named:
            raise Forbidden(why=f"claims {ALL_TENANTS} and {named[0]} contradict each other")
        if Right.ADMIN not in named_rights:
            raise Forbidden(why=f"claim {ALL_TENANTS}: needs the right admin")
        return None
    values = [_tenant_name(claims, claim, pattern) for claim in named or last]
    if not values:
        raise Forbidden(why=f"the token names no tenant: it has none of {', '.join(TENANT_CLAIMS)}")
    if len(set(values)) > 1:
        raise Forbidden(why=f"claims {', '.join(named)} name different tenants")
    return values[0]


def _tenant_name(claims: Claims, claim: str, pattern: re.Pattern[str]) -> str:
    value = claims.get(claim)
    if value is None:
        raise Forbidden(why=f"claim {claim}: names no tenant")
    _check(claim, value, TENANT_MAX)
    if pattern.fullmatch(value) is None:
        raise Forbidden(why=f"claim {claim}: is not the name of a tenant ({pattern.pattern})")
    return str(value)


def _rights(claims: Claims) -> set[Right]:
    """The rights of the token. Unknown words belong to other services and are ignored."""
    words: list[Any] = []
    for claim in RIGHT_CLAIMS:
        value = claims.get(claim)
        if isinstance(value, str):
            words += value.split()
        elif isinstance(value, list):
            words += value
        elif value is not None:
            raise Forbidden(why=f"claim {claim}: must be text or a list of texts")
    if not all(isinstance(word, str) for word in words):
        raise Forbidden(why="claim scope: must be text or a list of texts")
    found = (_RIGHTS.get(word.removeprefix(RIGHT_PREFIX)) for word in words)
    return {right for right in found if right is not None}


def _names(claims: Claims, claim: str, most: int) -> tuple[str, ...] | None:
    """The queues or types that the token is restricted to; None (all) if the claim is missing."""
    if claim not in claims:
        return None
    value = claims[claim]
    if not isinstance(value, list) or not 0 < len(value) <= SELECT_MAX:
        raise Forbidden(why=f"claim {claim}: must be a list of 1 to {SELECT_MAX} names")
    for name in value:
        _check(claim, name, most)
    return tuple(value)


def _check(claim: str, value: object, most: int) -> None:
    try:
        check_name(claim, value, most)
    except InvalidInput as error:
        raise Forbidden(why=f"claim {error}") from None


def _name(claims: Claims) -> str:
    """A name for logs and as an author, without characters that could forge a line."""
    for claim in NAME_CLAIMS:
        value = claims.get(claim)
        if isinstance(value, str):
            name = "".join(one if one.isprintable() else "?" for one in value)
            if name := name.strip()[:WORKER_MAX].strip():
                return name
    return "token"

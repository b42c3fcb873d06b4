"""What a verified token grants: tenant, rights, queues and types."""

from __future__ import annotations

import re
from typing import Any

import pytest
from tests.service.minted import asked, mint, refused, tokens

from holdfast.service.auth.claims import ALL_TENANTS, TENANT_CLAIMS, TENANT_PATTERN, caller_of
from holdfast.service.rights import Caller, Forbidden, Right

EVERY: dict[str, Any] = {ALL_TENANTS: True}


def read(*pattern: str, **claims: Any) -> Caller:
    wanted = pattern[0] if pattern else TENANT_PATTERN
    return caller_of({"sub": "acme", **claims}, re.compile(wanted), sub_tenant=True)


# -- tenant ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("claim", TENANT_CLAIMS)
def test_every_alias_names_the_tenant(claim: str) -> None:
    """Before the subject, which is then only the caller's name."""
    found = read(sub="Some User <u@x.test>", **{claim: "globex"})

    assert (found.tenant, found.name) == ("globex", "Some User <u@x.test>")


def test_the_subject_is_the_tenant_where_nothing_else_is_and_the_service_was_told_so() -> None:
    """P7: with an issuer of users each user would be a tenant, of whatever name it chose."""
    assert read().tenant == "acme"
    with pytest.raises(Forbidden, match="names no tenant"):
        caller_of({"sub": "acme", "scope": "read"}, re.compile(TENANT_PATTERN))


def test_aliases_that_agree_are_one_tenant() -> None:
    """Some issuers write all of them."""
    assert read(tid="globex", tenant_id="globex", organizationId="globex").tenant == "globex"


@pytest.mark.parametrize("first", TENANT_CLAIMS)
@pytest.mark.parametrize("second", TENANT_CLAIMS)
def test_aliases_that_disagree_are_refused(first: str, second: str) -> None:
    """Nobody guesses whose data it is."""
    if first != second:
        with pytest.raises(Forbidden, match="different tenants"):
            read(**{first: "globex", second: "acme"})


BAD_TENANTS = [
    "", "a", "Acme", "1acme", "acme_1", "acme.x", "-acme", "acme\n", " acme", "a" * 64, "äcme",
    "../x", "*", None, 7, True, ["acme"], {"id": "acme"},
]  # fmt: skip


@pytest.mark.parametrize("tenant", BAD_TENANTS, ids=repr)
def test_what_is_not_a_tenants_name_is_refused(tenant: Any) -> None:
    """An alias that is there and wrong does not fall back to the subject."""
    with pytest.raises(Forbidden):
        read(tid=tenant)


def test_a_token_that_names_no_tenant_is_refused() -> None:
    """Neither by an alias nor by a subject."""
    with pytest.raises(Forbidden, match="sub"):
        caller_of({"scope": "read"}, re.compile(TENANT_PATTERN), sub_tenant=True)


def test_the_pattern_of_tenants_can_be_another() -> None:
    """It must fit as a whole, also where it has no anchors."""
    assert read("[0-9]+", tid="42").tenant == "42"
    for tenant in ("42x", "x42", "42\n"):
        with pytest.raises(Forbidden):
            read("[0-9]+", tid=tenant)


def test_even_a_wide_pattern_keeps_the_limits_of_names() -> None:
    """What the store could not take is refused before."""
    for tenant in ("x" * 129, "a\x00b", ""):
        with pytest.raises(Forbidden):
            read(r"(?s).*", tid=tenant)


# -- every tenant ----------------------------------------------------------------------------------


def test_a_service_token_is_for_every_tenant() -> None:
    """With the right admin; it then names one by header."""
    assert read(**EVERY, scope="holdfast:admin").tenant is None


@pytest.mark.parametrize(
    "claims",
    [
        {ALL_TENANTS: True},
        {ALL_TENANTS: True, "scope": "produce work read operate"},
        {ALL_TENANTS: True, "scope": "admin", "tid": "acme"},
        {ALL_TENANTS: "true", "scope": "admin"},
        {ALL_TENANTS: 1, "scope": "admin"},
        {ALL_TENANTS: None, "scope": "admin"},
    ],
    ids=str,
)
def test_anything_less_is_not(claims: dict[str, Any]) -> None:
    """Refused, not read as something smaller."""
    with pytest.raises(Forbidden):
        read(**claims)


def test_admin_alone_stays_with_its_tenant() -> None:
    """The right is about what, the claim about whom."""
    assert read(scope="admin").tenant == "acme"
    assert read(scope="admin", **{ALL_TENANTS: False}).tenant == "acme"


# -- rights ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "rights"),
    [
        ({}, set()),
        ({"scope": ""}, set()),
        ({"scope": "read"}, {"read"}),
        ({"scope": "openid profile holdfast:produce holdfast:work"}, {"produce", "work"}),
        ({"scopes": ["read", "other:admin"]}, {"read"}),
        ({"rights": ["operate"]}, {"operate", "read"}),
        ({"scope": "produce", "rights": ["work"]}, {"produce", "work"}),
        ({"scope": "READ Admin holdfast:holdfast:admin holdfast: administrator"}, set()),
        ({"scope": "admin"}, {right.value for right in Right} - {"platform"}),
        ({"scope": "platform holdfast:platform work"}, {"work"}),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_rights_are_read_from_any_of_their_claims(claims: dict[str, Any], rights: set[str]) -> None:
    """Words that are none of ours mean nothing."""
    assert read(**claims).rights == rights


@pytest.mark.parametrize("claims", [{"scope": 7}, {"scopes": {"admin": 1}}, {"rights": [1]}])
def test_rights_in_another_shape_are_refused(claims: dict[str, Any]) -> None:
    """Not read as none, which would hide the mistake."""
    with pytest.raises(Forbidden):
        read(**claims)


@pytest.mark.parametrize("claim", ["queues", "types"])
def test_queues_and_types_are_lists_of_names(claim: str) -> None:
    """Not there is all; an empty list or another shape is refused."""
    assert getattr(read(), claim) is None
    assert getattr(read(**{claim: ["mail", "x/y"]}), claim) == ("mail", "x/y")
    for wrong in ([], None, "mail", [""], [7], ["a\n"], ["x"] * 101, {"mail": True}):
        with pytest.raises(Forbidden):
            read(**{claim: wrong})


def test_a_name_cannot_forge_a_line_of_a_log() -> None:
    """It is printable and short, whatever the token says."""
    assert read(sub="a\nb\x1b[31m", tid="acme").name == "a?b?[31m"
    assert len(read(sub="x" * 5000, tid="acme").name) == 128
    assert caller_of({"tid": "acme", "azp": "shop"}, re.compile(".*")).name == "shop"
    assert read(sub=" ", tid="acme").name == "token"


# -- as answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "claims",
    [
        {"tid": "globex", "tenantId": "acme"},
        {"tid": "Not A Tenant"},
        {"scope": "produce"},
        {"scope": None},
        {"queues": []},
        {ALL_TENANTS: True, "scope": "read"},
    ],
    ids=str,
)
async def test_a_genuine_token_that_grants_too_little_is_forbidden(claims: dict[str, Any]) -> None:
    """403: another try with the same token would not help."""
    refused(await asked(tokens(), mint(**claims)), 403)


async def test_the_header_chooses_only_for_a_service_token() -> None:
    """A tenant's token may repeat its own tenant, and name no other."""
    service = mint(**EVERY, scope="admin")

    assert (await asked(tokens(), service, holdfast_tenant="globex")).status == 200
    assert (await asked(tokens(), service)).status == 422
    assert (await asked(tokens(), mint(), holdfast_tenant="acme")).status == 200
    refused(await asked(tokens(), mint(), holdfast_tenant="globex"), 403)

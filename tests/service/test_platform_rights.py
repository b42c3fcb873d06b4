"""Who may read and change the scopes of the platform, tried by every way in: the native routes, the
verbs of the remote store, the dashboard and the Firecrawl protocol. Only a token for every tenant
with the right platform may; a scope with an empty tenant is no way around that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.service.asgi import Answer, Client
from tests.service.over_all import (
    ACME,
    CALLERS,
    NARROW,
    OF_ALL,
    PLATFORMS,
    SCOPES,
    client_of,
    each_caller,
    each_other,
    each_scope,
    limited,
    packed,
    state,
    told_nothing,
)

from holdfast.core.scope import PLATFORM, Pause, Scope, ScopeKind, ScopeSettings, encode
from holdfast.scopes import ScopeHandle
from holdfast.service.service import Service
from holdfast.store import Put
from holdfast.stores.remote import wire


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with limited() as found:
        yield found


# -- changing --------------------------------------------------------------------------------------

CHANGES: dict[str, tuple[str, str, Any, ScopeSettings | None]] = {
    "set": ("PATCH", "", {"max_running": 5}, ScopeSettings(max_running=5)),
    "pause": ("POST", "/pause", {"reason": "mine"}, ScopeSettings(paused=Pause("mine", "me"))),
    "resume": ("POST", "/resume", None, ScopeSettings(max_running=1)),
    "remove": ("PATCH", "", {"max_running": None, "rate": None}, None),
}


async def sent(service: Service, client: Client, change: str, path: str) -> tuple[Answer, Answer]:
    """The change by its route, and by the verb of the remote store at the present version."""
    method, act, body, wanted = CHANGES[change]
    scope = SCOPES[path]
    native = await client.call(method, f"/v1/platform{path}{act}", body)
    version = (await ScopeHandle(service.store, scope).get()).version
    value = None if wanted is None else encode(wanted)
    puts = wire.Puts([Put(scope.name, value, version)], wire.Under(scope.name))
    return native, await packed(client, "put", puts)


@pytest.mark.parametrize("bound", [False, True], ids=["", "tenant named"])
@pytest.mark.parametrize("change", CHANGES)
@each_scope
@each_other
async def test_only_the_platform_changes_its_scopes(
    service: Service, token: str, path: str, change: str, bound: bool
) -> None:
    """P19: neither a tenant's token with every right, nor one that operates all tenants."""
    before = await state(service)

    for answer in await sent(service, client_of(service, token, bound=bound), change, path):
        assert answer.status == 403, answer
        told_nothing(answer)

    assert await state(service) == before


@pytest.mark.parametrize("change", CHANGES)
@each_scope
@pytest.mark.parametrize("token", PLATFORMS)
async def test_the_platform_changes_its_scopes_by_either_way(
    service: Service, token: str, path: str, change: str
) -> None:
    """With the right to platform, or that to admin every tenant."""
    for answer in await sent(service, client_of(service, token), change, path):
        assert answer.status == 200, answer


@each_other
async def test_one_put_of_the_platform_spoils_the_whole_call(service: Service, token: str) -> None:
    """It may not ride along with what the token may set."""
    before = await state(service)
    own = await ScopeHandle(service.store, Scope(ACME)).get()
    puts = [
        Put(Scope(ACME).name, encode(ScopeSettings(max_running=2)), own.version),
        Put(Scope("", ScopeKind.QUEUE, "new").name, encode(ScopeSettings(max_running=2)), 0),
    ]

    answer = await packed(client_of(service, token), "put", wire.Puts(puts, None))

    assert answer.status == 403, answer
    assert await state(service) == before


@pytest.mark.parametrize(
    "name",
    [
        "scope/tenant/0:/", "scope/group/0:/g", "scope/platform/0:/x", "scope/platform/4:acme/",
        "scope/type/4:acme/send", "scope/queue/00:/mail", "scope/queue/0:mail", "scope/type/0:/",
        "scope/queue/-0:/mail", "scope/queue/0:/ mail",
    ],
)  # fmt: skip
@each_caller
async def test_a_name_that_is_nearly_the_platforms_is_no_way_in(
    service: Service, token: str, name: str
) -> None:
    """Refused, whoever asks: what is set under it would be read as something else."""
    before = await state(service)
    client = client_of(service, token)

    value = encode(ScopeSettings(max_running=2))
    answer = await packed(client, "put", wire.Puts([Put(name, value, 0)], None))

    assert answer.status in (403, 422), answer
    assert await state(service) == before


# -- reading ---------------------------------------------------------------------------------------


@each_scope
@each_other
async def test_only_the_platform_reads_its_scopes(service: Service, token: str, path: str) -> None:
    """P7: their numbers are those of other tenants."""
    client, scope = client_of(service, token), SCOPES[path]
    kinds = [(None, scope.kind), ("", scope.kind), ("", ScopeKind.QUEUE), (ACME, ScopeKind.TYPE)]

    for where in (path, f"{path}/counts", "/scopes"):
        told_nothing(await client.get(f"/v1/platform{where}"))
    told_nothing(await packed(client, "settings", wire.Under(scope.name)))
    told_nothing(await packed(client, "settings", wire.Under(scope.name.rpartition("/")[0])))
    for tenant, by in kinds:
        if (tenant, by) == (None, ScopeKind.QUEUE):
            continue  # The queues of tenants.
        asked = wire.Counting(tenant=tenant, by=by)
        told_nothing(await packed(client, "count", asked))
        told_nothing(await packed(client, "recount", asked))


@pytest.mark.parametrize("limit", [1, 2, 1000])
@pytest.mark.parametrize(
    "under", ["scope/", "scope/p", "scope/queue/", "scope/queue/0", "scope/type/", "scope/tenant/"]
)
@pytest.mark.parametrize("token", OF_ALL)
async def test_lists_of_all_tenants_leave_the_platform_out(
    service: Service, token: str, under: str, limit: int
) -> None:
    """And nothing else, also where the page before was full of them."""
    more = Scope("globex", ScopeKind.QUEUE, "mail")
    await service.store.settings([Put(more.name, encode(ScopeSettings(max_running=9)), 0)])
    client, found, after = client_of(service, token), [], ""
    while True:
        answer = await packed(client, "settings", wire.Under(under, after, limit))
        assert answer.status == 200, answer
        page = msgspec.msgpack.decode(answer.body)
        found += [one["name"] for one in page]
        if len(page) < limit:
            break
        after = found[-1]

    assert found == [name for name in (more.name, Scope(ACME).name) if name.startswith(under)]
    listed = await client.get("/v1/scopes", holdfast_tenant=ACME)
    assert [one["kind"] for one in listed.json["scopes"]] == ["tenant"]


@each_scope
@pytest.mark.parametrize("token", PLATFORMS)
async def test_the_platform_reads_its_scopes(service: Service, token: str, path: str) -> None:
    """By every route: settings, version and the running jobs of all tenants."""
    client, scope = client_of(service, token), SCOPES[path]

    one = (await client.get(f"/v1/platform{path}")).json
    assert (one["kind"], one["name"], one["version"]) == (scope.kind.value, scope.part, 1)
    assert (one["settings"]["max_running"], one["counts"]) == (1, {"processing": 1})
    counted = (await client.get(f"/v1/platform{path}/counts")).json
    assert (counted["name"], counted["counts"]) == (scope.part, {"processing": 1})
    page = (await client.get("/v1/platform/scopes?limit=2")).json
    rest = (await client.get(f"/v1/platform/scopes?after={page['cursor']}")).json
    kinds = [each["kind"] for each in (*page["scopes"], *rest["scopes"])]
    assert kinds == ["platform", "queue", "type"]
    for under in (scope.name, "scope/"):
        answer = await packed(client, "settings", wire.Under(under))
        assert scope.name in {each["name"] for each in msgspec.msgpack.decode(answer.body)}
    answer = await packed(client, "count", wire.Counting(tenant="", by=scope.kind))
    assert [each["queue"] for each in msgspec.msgpack.decode(answer.body)] == [scope.part]


@each_caller
async def test_events_of_the_platform_are_for_those_of_all_tenants(
    service: Service, token: str
) -> None:
    """P7, P14: an operator reads the log of all tenants; a tenant never sees these."""
    client = client_of(service, token)
    answer = await packed(client, "events", wire.Reading(tenant=None, after=0, limit=1000))
    native = await client.get("/v1/events?limit=1000", holdfast_tenant=ACME)
    empty = await packed(client, "events", wire.Reading(tenant="", after=0, limit=1000))

    told = PLATFORM.name.encode() in answer.body
    assert told is (CALLERS[token].tenant is None)
    assert PLATFORM.name.encode() not in native.body
    assert empty.status in (403, 422), empty


# -- tokens for some queues or types ---------------------------------------------------------------

REACH = {"mail of all": ("/queues/mail",), "send of all": ("", "/queues/mail", "/types/send")}


@pytest.mark.parametrize("token", NARROW)
async def test_a_narrow_token_of_the_platform_reaches_only_what_it_is_for(
    service: Service, token: str
) -> None:
    """The store and a type include other queues."""
    for path, scope in {**SCOPES, "/types/pay": Scope("", ScopeKind.TYPE, "pay")}.items():
        client = client_of(service, token)
        may = path in REACH[token]
        for where in (path, f"{path}/counts"):
            answer = await client.get(f"/v1/platform{where}")
            assert answer.status == (200 if may else 403), (path, answer)
        if path in SCOPES:
            for answer in await sent(service, client, "set", path):
                assert answer.status == (200 if may else 403), (path, answer)
        listed = await packed(client, "settings", wire.Under("scope/"))
        assert (scope.name.encode() in listed.body) is (may and path in SCOPES), path
    listed = await client.get("/v1/platform/scopes")
    assert len(listed.json["scopes"]) == len(REACH[token])
    refused = await packed(client, "count", wire.Counting(tenant="", by=ScopeKind.TYPE))
    assert refused.status == 403

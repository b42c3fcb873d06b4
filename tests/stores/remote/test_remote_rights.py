"""What a token may do through a remote store: by right, by tenant, by queue and type."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from tests.servers.service import Host, Place
from tests.stores.remote.conftest import Opened, Tokens

from holdfast.core.clock import SECOND
from holdfast.core.errors import JobNotFound, StaleSetting, StoreError, StoreUnavailable
from holdfast.core.job import Completed, State
from holdfast.core.journal import Signal
from holdfast.core.lifecycle import Transition, decide, lapse
from holdfast.core.scope import TENANT_KINDS, Scope, ScopeKind, ScopeSettings, encode
from holdfast.service.rights import Caller, Right, rights
from holdfast.store import Act, Claim, Extension, Hold, Put, Ref, Take, Watch
from holdfast.stores.remote.store import RemoteStore
from holdfast.testing.contract.builders import (
    ACME,
    AUDIO,
    GLOBEX,
    LEASE,
    MAIL,
    changing,
    finding,
    group_of,
    ids,
    job,
    queue_of,
    tenant_of,
)
from holdfast.worker_registry import PREFIX, Present, present_workers

ALL = frozenset(Right)
EACH = {right.value: rights([right]) for right in Right}
CALLERS = (
    Caller(name="root", tenant=None, rights=ALL),
    Caller(name="acme", tenant=ACME, rights=ALL),
    Caller(name="globex", tenant=GLOBEX, rights=ALL),
    Caller(name="mailer", tenant=ACME, rights=ALL, queues=(MAIL,)),
    Caller(name="sender", tenant=ACME, rights=ALL, types=("send",)),
    Caller(name="nowhere", tenant=ACME, rights=ALL, queues=()),
    *(Caller(name=name, tenant=None, rights=held) for name, held in EACH.items()),
)


@pytest.fixture
def place(own_host: Host) -> Place:
    return own_host.place("rights", auth=Tokens(*CALLERS))


def wish(nonce: str, **more: object) -> Claim:
    return Claim(worker="w", nonce=nonce, limit=10, lease_us=LEASE, **more)  # type: ignore[arg-type]


async def refused(call: Awaitable[Any]) -> str:
    """The words of a call that is not allowed."""
    with pytest.raises(StoreError, match="not allowed") as caught:
        await call
    assert type(caught.value) is StoreError
    return str(caught.value)


async def test_a_token_that_does_not_hold_does_not_open(place: Place, opened: Opened) -> None:
    """Told by name, and without the token; without any, verbs are refused."""
    with pytest.raises(StoreUnavailable, match="does not know this token") as caught:
        await opened(place, "forged")
    assert "forged" not in str(caught.value)

    nobody = await opened(place)
    assert nobody.hello.caller is None
    with pytest.raises(StoreUnavailable, match="token is missing"):
        await nobody.find(finding())


VERBS: dict[str, tuple[Right, Callable[[RemoteStore], Awaitable[Any]]]] = {
    "enqueue": (Right.PRODUCE, lambda s: s.enqueue([job("a")])),
    "enqueue all or none": (Right.PRODUCE, lambda s: s.enqueue([job("a")], whole=True)),
    "enqueue what ends with its parents": (
        Right.PRODUCE,
        lambda s: s.enqueue([job("a", parents=1, ends_with_parents=True)]),
    ),
    "cancel": (Right.PRODUCE, lambda s: s.cancel([Ref(ACME, "a")])),
    "signal": (Right.PRODUCE, lambda s: s.signal([Signal(ACME, "a", "ok", b"1")])),
    "claim": (Right.WORK, lambda s: s.claim(wish("n"))),
    "extend": (
        Right.WORK,
        lambda s: s.extend([Extension(tenant=ACME, id="a", token="t", lease_us=1)]),
    ),
    "ack": (
        Right.WORK,
        lambda s: s.ack([Transition(tenant=ACME, id="a", token="t", to=State.COMPLETED)]),
    ),
    "presence": (Right.WORK, lambda s: s.hold([Take("worker/w", "w", SECOND)])),
    "slot": (Right.WORK, lambda s: s.hold([Take(group_of().slot("s"), "s", SECOND)])),
    "wait": (Right.WORK, lambda s: s.wait(Watch(), 0.0)),
    "watch": (Right.READ, lambda s: s.wait(Watch(job=Ref(ACME, "a")), 0.0)),
    "news": (Right.READ, lambda s: s.wait(Watch(news=True), 0.0)),
    "find": (Right.READ, lambda s: s.find(finding())),
    "count": (Right.READ, lambda s: s.count(ACME)),
    "explain": (Right.READ, lambda s: s.explain(Ref(ACME, "a"))),
    "events": (Right.READ, lambda s: s.events(None, 0, 1)),
    "settings": (Right.READ, lambda s: s.settings(under="scope/")),
    "holds": (Right.READ, lambda s: s.hold(under="worker/")),
    "change": (Right.OPERATE, lambda s: s.change(changing(Act.DELETE))),
    "put": (
        Right.OPERATE,
        lambda s: s.settings([Put(queue_of().name, encode(ScopeSettings(max_running=1)), 0)]),
    ),
    "other settings": (Right.ADMIN, lambda s: s.settings(under="")),
    "put another": (Right.ADMIN, lambda s: s.settings([Put("key/x", b"x", 0)])),
    "another name": (Right.ADMIN, lambda s: s.hold([Take("leader", "w", SECOND)])),
    "expired": (Right.ADMIN, lambda s: s.expired(1)),
    "prune": (Right.ADMIN, lambda s: s.prune(1, 0)),
    "recount": (Right.ADMIN, lambda s: s.count(None, recount=True)),
    "no token": (
        Right.ADMIN,
        lambda s: s.ack([Transition(tenant=ACME, id="a", token=None, to=State.FAILED)]),
    ),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_a_verb_asks_for_its_right(place: Place, opened: Opened, verb: str) -> None:
    """And for no other: a token with that one alone is enough."""
    needed, act = VERBS[verb]
    for right in Right:
        store = await opened(place, right.value)
        if needed in EACH[right.value]:
            with contextlib.suppress(JobNotFound, StaleSetting):
                await act(store)
        else:
            await refused(act(store))


async def test_upkeeps_transitions_are_not_a_workers(place: Place, opened: Opened) -> None:
    """A lapse needs the right to admin, also with the token that lapsed."""
    root, worker = await opened(place, "root"), await opened(place, "work")
    await root.enqueue([job("a")])
    [lease] = await worker.claim(wish("n"))

    await refused(worker.ack([lapse(lease.job, lease.token)]))
    await refused((await opened(place, "acme")).ack([lapse(lease.job, lease.token)]))

    [done] = await worker.ack([decide(Completed(), lease.job, lease.token, 0.0)])
    assert done.state is State.COMPLETED


# -- tenants ---------------------------------------------------------------------------------------


async def both(root: RemoteStore) -> None:
    await root.enqueue([job("a"), job("b", tenant=GLOBEX)])


async def test_a_token_of_one_tenant_means_its_own(place: Place, opened: Opened) -> None:
    """Where every tenant would be meant: claims, pages, counts, events."""
    root, acme = await opened(place, "root"), await opened(place, "acme")
    await both(root)

    assert ids((await acme.find(finding(None))).jobs) == ["a"]
    assert [tally.tenant for tally in await acme.count(None)] == [ACME]
    assert {event.tenant for event in (await acme.events(None, 0, 10)).events} == {ACME}
    assert (await acme.change(changing(Act.REPRIORITISE, None, priority=3))).done == {
        Ref(ACME, "a"): "a"
    }
    assert ids(await acme.claim(wish("n"))) == ["a"]
    assert ids(await root.claim(wish("m"))) == ["b"]


FOREIGN: dict[str, Callable[[RemoteStore], Awaitable[Any]]] = {
    "enqueue": lambda s: s.enqueue([job("x"), job("x", tenant=GLOBEX)]),
    "enqueue all or none": lambda s: s.enqueue([job("x"), job("x", tenant=GLOBEX)], whole=True),
    "claim": lambda s: s.claim(wish("n", tenants=(ACME, GLOBEX))),
    "extend": lambda s: s.extend([Extension(tenant=GLOBEX, id="b", token="t", lease_us=1)]),
    "ack": lambda s: s.ack([Transition(tenant=GLOBEX, id="b", token="t", to=State.COMPLETED)]),
    "cancel": lambda s: s.cancel([Ref(ACME, "a"), Ref(GLOBEX, "b")]),
    "change": lambda s: s.change(changing(Act.DELETE, GLOBEX)),
    "find": lambda s: s.find(finding(GLOBEX)),
    "count": lambda s: s.count(GLOBEX),
    "explain": lambda s: s.explain(Ref(GLOBEX, "b")),
    "events": lambda s: s.events(GLOBEX, 0, 1),
    "wait": lambda s: s.wait(Watch(tenants=(GLOBEX,)), 0.0),
    "watch": lambda s: s.wait(Watch(job=Ref(GLOBEX, "b")), 0.0),
    "settings": lambda s: s.settings(under="scope/"),
    "all settings": lambda s: s.settings(under=""),
    "its settings": lambda s: s.settings(under=tenant_of(GLOBEX).name),
    "its put": lambda s: s.settings([Put(tenant_of(GLOBEX).name, b"{}", 0)]),
    "other put": lambda s: s.settings([Put("key/x", b"x", 0)]),
    "its slot": lambda s: s.hold([Take(queue_of(tenant=GLOBEX).slot("s"), "s", SECOND)]),
    "its slots": lambda s: s.hold(under=queue_of(tenant=GLOBEX).slots),
    "longer name": lambda s: s.hold(under="slot/queue/5:acmex/"),
    "all holds": lambda s: s.hold(under=""),
    "another name": lambda s: s.hold([Take("leader", "w", SECOND)]),
    "expired": lambda s: s.expired(10),
    "prune": lambda s: s.prune(10, 0),
    "recount": lambda s: s.count(ACME, recount=True),
}


@pytest.mark.parametrize("verb", FOREIGN)
async def test_a_token_of_one_tenant_names_no_other(
    place: Place, opened: Opened, verb: str
) -> None:
    """With every right; nothing has changed after."""
    root, acme = await opened(place, "root"), await opened(place, "acme")
    await both(root)
    before = await root.events(None, 0, 100)

    await refused(FOREIGN[verb](acme))

    assert await root.events(None, 0, 100) == before
    assert await root.hold(under="") == []
    assert await root.settings(under="") == []


async def test_a_url_may_bind_a_token_to_a_tenant(place: Place, opened: Opened) -> None:
    """tenant= makes a token for all act for one."""
    root, bound = await opened(place, "root"), await opened(place, "root", tenant=ACME)
    await both(root)

    assert ids((await bound.find(finding(None))).jobs) == ["a"]
    await refused(bound.find(finding(GLOBEX)))
    await refused((await opened(place, "globex", tenant=ACME)).find(finding(None)))


async def test_settings_and_slots_of_its_own_are_a_tenants(place: Place, opened: Opened) -> None:
    """By the names of its scopes."""
    acme = await opened(place, "acme")
    value = encode(ScopeSettings(max_running=1))
    for scope in (tenant_of(), queue_of(), group_of()):
        await acme.settings([Put(scope.name, value, 0)])
        assert [one.name for one in await acme.settings(under=scope.name)] == [scope.name]
        await acme.hold([Take(scope.slot("s"), "s", SECOND)])
        assert [one.name for one in await acme.hold(under=scope.slots)] == [scope.slot("s")]


# -- holds -----------------------------------------------------------------------------------------


def note(*tenants: str) -> str:
    present = Present(
        pid=7, tenants=tenants or None, queues=None, types=("send",), concurrency=2, running=1,
        held=1,
    )  # fmt: skip
    return msgspec.json.encode(present).decode()


async def test_workers_of_tenants_do_not_meet(place: Place, opened: Opened) -> None:
    """The same name is two workers; each serves its own tenant, whatever it says."""
    root = await opened(place, "root")
    acme, globex = await opened(place, "acme"), await opened(place, "globex")
    for store in (acme, globex):
        [held] = await store.hold([Take(f"{PREFIX}w", "w", 60 * SECOND, note())])
        assert (held.name, held.owner) == (f"{PREFIX}w", "w")

    await globex.hold([Take(f"{PREFIX}w", "w", 0)])

    [seen] = await present_workers(acme)
    assert (seen.name, seen.note.tenants, seen.note.running) == ("w", (ACME,), 1)
    assert await present_workers(globex) == []
    assert [one.note.tenants for one in await present_workers(root)] == [(ACME,)]


async def test_a_tenant_sees_who_serves_it_and_nothing_of_others(
    place: Place, opened: Opened
) -> None:
    """A worker for all is there for this tenant too; whom else it serves is not told."""
    root, acme = await opened(place, "root"), await opened(place, "acme")
    for name, tenants in (("all", ()), ("some", (ACME, GLOBEX)), ("other", (GLOBEX,))):
        await root.hold([Take(f"{PREFIX}{name}", name, 60 * SECOND, note(*tenants))])

    seen = await present_workers(acme)

    assert [one.name for one in seen] == ["all", "some"]
    assert {(one.note.tenants, one.note.pid, one.note.running) for one in seen} == {((ACME,), 0, 0)}


async def test_who_may_not_do_the_upkeep_is_told_who_does(place: Place, opened: Opened) -> None:
    """A worker takes part in the election, never wins, and nothing is written."""
    root, worker = await opened(place, "root"), await opened(place, "work")
    acme = await opened(place, "acme")
    for store in (worker, acme):
        assert await store.hold([Take("upkeep", "w", SECOND)]) == [Hold("upkeep", "", 0, "")]
    await root.hold([Take("upkeep", "service", 60 * SECOND, "secret figures")])

    for store in (worker, acme):
        [told, slot] = await store.hold(
            [Take("upkeep", "w", SECOND), Take(group_of().slot("s"), "s", SECOND)]
        )
        assert (told.name, told.owner, told.note) == ("upkeep", "service", "")
        assert slot.name == group_of().slot("s")
    assert [one.owner for one in await root.hold(under="upkeep")] == ["service"]


# -- queues and types ------------------------------------------------------------------------------


async def test_a_token_for_a_queue_stays_in_it(place: Place, opened: Opened) -> None:
    """Enqueue, claim, look, cancel; what is elsewhere is not found."""
    root, mailer = await opened(place, "root"), await opened(place, "mailer")
    await root.enqueue([job("m"), job("v", queue=AUDIO)])

    await refused(mailer.enqueue([job("x", queue=AUDIO)]))
    await refused(mailer.claim(wish("n", queues=(AUDIO,))))
    await refused(mailer.settings([Put(queue_of(AUDIO).name, b"{}", 0)]))
    await refused(mailer.find(finding(queues=(AUDIO,))))
    assert ids((await mailer.find(finding())).jobs) == ["m"]
    assert [tally.queue for tally in await mailer.count(ACME)] == [MAIL]
    assert {event.queue for event in (await mailer.events(ACME, 0, 10)).events} == {MAIL}
    with pytest.raises(JobNotFound):
        await mailer.explain(Ref(ACME, "v"))
    canceled = await mailer.cancel([Ref(ACME, "v"), Ref(ACME, "none")])
    assert [type(one.error) for one in canceled] == [JobNotFound, JobNotFound]
    assert ids(await mailer.claim(wish("n"))) == ["m"]
    assert ids(await root.claim(wish("m"))) == ["v"]


@pytest.mark.parametrize("queue", ["holdfast.ticks", "holdfast.flows"])
async def test_a_token_for_a_queue_selects_nothing_by_naming_another(
    place: Place, opened: Opened, queue: str
) -> None:
    """P7: a claim leaves out the queues of the library that a token is not for. In a selection no
    queue means every queue, so there it is refused.
    """
    root, mailer = await opened(place, "root"), await opened(place, "mailer")
    await root.enqueue([job("v", queue=AUDIO)])

    await refused(mailer.find(finding(queues=(queue,))))
    await refused(mailer.change(changing(Act.DELETE, queues=(queue,))))

    assert ids((await root.find(finding(ids=("v",)))).jobs) == ["v"]


async def test_a_token_for_no_queue_sees_none(place: Place, opened: Opened) -> None:
    """No queue is not the same as every queue."""
    root, nowhere = await opened(place, "root"), await opened(place, "nowhere")
    await root.enqueue([job("m")])

    await refused(nowhere.claim(wish("n")))
    await refused(nowhere.find(finding()))
    await refused(nowhere.cancel([Ref(ACME, "m")]))
    assert await nowhere.count(ACME) == []


async def test_a_token_for_a_type_is_handed_no_other(place: Place, opened: Opened) -> None:
    """It enqueues only its own; a foreign one goes back with its attempt, for a while."""
    root, sender = await opened(place, "root"), await opened(place, "sender")
    await refused(sender.enqueue([job("x", type="pay")]))
    await root.enqueue([job("p", type="pay"), job("s")])

    assert ids(await sender.claim(wish("n"))) == ["s"]

    [paying] = (await root.find(finding(ids=("p",)))).jobs
    assert (paying.state, paying.attempt) == (State.SCHEDULED, 0)


async def test_only_an_admin_enqueues_pickle(place: Place, opened: Opened) -> None:
    """Reading it runs code, in whatever worker has switched it on."""
    new = job("a")
    envelope = msgspec.structs.replace(new.envelope, codec="pickle")
    pickled = msgspec.structs.replace(new, envelope=envelope)

    await refused((await opened(place, "produce")).enqueue([pickled]))
    [kept] = await (await opened(place, "root")).enqueue([pickled])
    assert kept.created


def test_scopes_are_kept_apart_by_length() -> None:
    """What the bounds rely on: the name of one tenant's scope is no prefix of another's."""
    for kind in TENANT_KINDS:
        part = "" if kind is ScopeKind.TENANT else "x"
        short, long = Scope("acme", kind, part), Scope("acme/x", kind, part)
        assert not long.name.startswith(short.name.removesuffix(part))
        assert not long.slots.startswith(short.slots)

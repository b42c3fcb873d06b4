"""The dispatcher in front of every store: its checks, and what an observer sees."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import msgspec
import pytest

from holdfast import App
from holdfast.core import bounds
from holdfast.core.clock import SECOND
from holdfast.core.errors import InvalidInput, StoreUnavailable, StoreUnsupported
from holdfast.core.job import By, State
from holdfast.core.journal import Signal
from holdfast.core.lifecycle import Transition
from holdfast.core.scope import ScopeKind
from holdfast.core.shadow import ShadowRead
from holdfast.dispatch import Dispatcher, dispatched, inner_of, name_of
from holdfast.store import (
    Act,
    Change,
    Claim,
    Extension,
    Find,
    Put,
    Ref,
    Selection,
    Store,
    Take,
    Watch,
)
from holdfast.store_calls import StoreCall
from holdfast.stores import open_store
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.contract.builders import job
from holdfast.testing.faults import Faults

Try = Callable[[Dispatcher], Awaitable[object]]

REF = Ref("acme", "a")
ALL = Selection(tenant="acme")
MANY = bounds.BATCH_MAX + 1
LONG = "x" * 3000


def claim(**changed: Any) -> Try:
    wish = Claim(worker="w", nonce="n", limit=1, lease_us=SECOND)
    return lambda store: store.claim(msgspec.structs.replace(wish, **changed))


def find(**changed: Any) -> Try:
    return lambda store: store.find(Find(select=msgspec.structs.replace(ALL, **changed)))


def change(**changed: Any) -> Try:
    wish = Change(select=ALL, act=Act.DELETE)
    return lambda store: store.change(msgspec.structs.replace(wish, **changed))


SIGNAL = Signal("acme", "a", "approved", b"true")
EXTENSION = Extension(tenant="acme", id="a", token="t", lease_us=SECOND)
TRANSITION = Transition(tenant="acme", id="a", token="t", to=State.COMPLETED)

REFUSED: list[tuple[str, str, Try]] = [
    ("enqueue", "jobs", lambda store: store.enqueue([job("a")] * MANY)),
    ("claim", "limit", claim(limit=bounds.CLAIM_MAX + 1)),
    ("claim", "limit", claim(limit=-1)),
    ("claim", "worker", claim(worker="")),
    ("claim", "nonce", claim(nonce="a.b")),
    ("claim", "lease_us", claim(lease_us=-1)),
    ("claim", "tenants", claim(tenants=("acme",) * MANY)),
    ("claim", "tenants", claim(tenants=("",))),
    ("claim", "queues", claim(queues=("a\n",))),
    ("claim", "exclude_groups", claim(exclude_groups=("g",) * (bounds.EXCLUDE_MAX + 1))),
    ("claim", "exclude_groups", claim(exclude_groups=(LONG,))),
    ("extend", "extensions", lambda store: store.extend([EXTENSION] * MANY)),
    ("ack", "transitions", lambda store: store.ack([TRANSITION] * MANY)),
    ("cancel", "refs", lambda store: store.cancel([REF] * MANY)),
    ("cancel", "id", lambda store: store.cancel([REF, Ref("acme", "")])),
    ("cancel", "author", lambda store: store.cancel([REF], by=By(""))),
    ("change", "limit", change(limit=bounds.CHANGE_MAX + 1)),
    ("change", "after", change(after=-1)),
    ("change", "priority", change(priority=2**40)),
    ("change", "delay_us", change(delay_us=-1)),
    ("change", "run_at", change(run_at=-1)),
    ("change", "reason", change(by=By("ann", LONG))),
    ("change", "ids", change(select=Selection(tenant="acme", ids=("a",) * MANY))),
    ("expired", "limit", lambda store: store.expired(bounds.EXPIRED_MAX + 1)),
    ("prune", "limit", lambda store: store.prune(bounds.PRUNE_MAX + 1, 0)),
    ("prune", "events_keep_us", lambda store: store.prune(1, -1)),
    ("find", "limit", lambda store: store.find(Find(select=ALL, limit=bounds.PAGE_MAX + 1))),
    ("find", "after", lambda store: store.find(Find(select=ALL, after=-1))),
    ("find", "tenant", find(tenant="")),
    ("find", "ids", find(ids=(LONG,))),
    ("find", "queues", find(queues=("q",) * (bounds.SELECT_MAX + 1))),
    ("find", "types", find(types=("",))),
    ("find", "states", find(states=(State.FAILED,) * (bounds.SELECT_MAX + 1))),
    ("find", "groups", find(groups=("",))),
    ("find", "tags", find(tags=("",))),
    ("find", "key", find(key="")),
    ("find", "created_from", find(created_from=-1)),
    ("find", "failed_before", find(failed_before=2**63)),
    ("count", "limit", lambda store: store.count(None, limit=bounds.PAGE_MAX + 1)),
    ("count", "tenant", lambda store: store.count(LONG)),
    ("count", "part", lambda store: store.count("acme", part=LONG)),
    ("count", "after", lambda store: store.count("acme", after=("acme", LONG))),
    ("explain", "id", lambda store: store.explain(Ref("acme", LONG))),
    ("events", "limit", lambda store: store.events(None, 0, bounds.PAGE_MAX + 1)),
    ("events", "after", lambda store: store.events(None, -2, 1)),
    ("events", "job_id", lambda store: store.events(None, 0, 1, "")),
    ("settings", "puts", lambda store: store.settings([Put("a", b"", 0)] * MANY)),
    ("settings", "name", lambda store: store.settings([Put("", b"", 0)])),
    ("settings", "version", lambda store: store.settings([Put("a", b"", -1)])),
    ("settings", "under", lambda store: store.settings(under=LONG)),
    ("settings", "after", lambda store: store.settings(under="a", after=LONG)),
    ("settings", "limit", lambda store: store.settings(under="a", limit=bounds.PAGE_MAX + 1)),
    ("settings", "author", lambda store: store.settings([Put("a", b"", 0)], by=By(""))),
    ("hold", "takes", lambda store: store.hold([Take("a", "me", 1)] * MANY)),
    ("hold", "owner", lambda store: store.hold([Take("a", "", 1)])),
    ("hold", "length_us", lambda store: store.hold([Take("a", "me", -1)])),
    ("hold", "note", lambda store: store.hold([Take("a", "me", 1, "a\0b")])),
    ("hold", "limit", lambda store: store.hold(under="a", limit=bounds.PAGE_MAX + 1)),
    ("shadow", "tenant", lambda store: store.shadow(ShadowRead(tenant=""))),
    ("shadow", "limit", lambda store: store.shadow(ShadowRead(tenant="acme", limit=MANY))),
    ("wait", "queues", lambda store: store.wait(Watch(queues=("",)), 0)),
    ("wait", "id", lambda store: store.wait(Watch(job=Ref("acme", "")), 0)),
    ("wait", "timeout_s", lambda store: store.wait(Watch(), float("nan"))),
]

ACCEPTED: dict[str, tuple[int, Try]] = {
    "enqueue": (2, lambda store: store.enqueue([job("a"), job("b")])),
    "claim": (0, claim()),
    "extend": (1, lambda store: store.extend([EXTENSION])),
    "ack": (1, lambda store: store.ack([TRANSITION])),
    "signal": (1, lambda store: store.signal([SIGNAL], by=By("ann"))),
    "cancel": (1, lambda store: store.cancel([REF], by=By("ann"))),
    "change": (0, change()),
    "expired": (0, lambda store: store.expired(1)),
    "prune": (0, lambda store: store.prune(1, 10 * SECOND)),
    "find": (0, find(queues=("mail",))),
    "count": (0, lambda store: store.count("acme", by=ScopeKind.GROUP, part="g", limit=3)),
    "explain": (1, lambda store: store.explain(REF)),
    "events": (0, lambda store: store.events("acme", 0, 10, "a")),
    "settings": (1, lambda store: store.settings([Put("a", b"1", 0)], by=By("ann"))),
    "hold": (1, lambda store: store.hold([Take("a", "me", SECOND)])),
    "shadow": (0, lambda store: store.shadow(ShadowRead(tenant="acme"))),
    "wait": (1, lambda store: store.wait(Watch(queues=("mail",)), 0)),
    "migrate": (1, lambda store: store.migrate()),
    "close": (1, lambda store: store.close()),
    "open": (1, lambda store: store.open()),
}
"""A call of each verb, and the items that an observer is told of."""


@pytest.fixture
async def faults() -> AsyncIterator[Faults]:
    """A memory store that counts its calls."""
    faults = Faults(MemoryStore())
    await faults.real.open()
    yield faults
    await faults.real.close()


def verbs(of: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(found)
        for name, found in vars(of).items()
        if inspect.iscoroutinefunction(found) and not name.startswith("_")
    }


def test_every_verb_of_the_contract_is_dispatched_with_the_same_arguments() -> None:
    """A verb that is added to the contract must be added here, or no store could be called."""
    own = verbs(Dispatcher)
    assert own.pop("enqueue_using")
    assert own.pop("prepare")
    assert own.pop("mapped")
    assert own.pop("ack_using")

    assert own == verbs(Store)
    assert set(ACCEPTED) == set(own)


@pytest.mark.parametrize("verb", ACCEPTED)
async def test_a_verb_reaches_the_store_with_the_arguments_it_was_given(verb: str) -> None:
    """The store sees what the caller said: nothing is lost, nothing is added."""
    given = Recorder()
    passed = Recorder()

    await ACCEPTED[verb][1](given)  # type: ignore[arg-type]
    await ACCEPTED[verb][1](Dispatcher(passed))  # type: ignore[arg-type]

    signature = verbs(Store)[verb]
    assert _bound(signature, *passed.calls[0]) == _bound(signature, *given.calls[0])


class Recorder:
    """Notes the arguments of each call, by the name of its verb."""

    capabilities = MemoryStore.capabilities

    def __init__(self) -> None:
        self.calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, verb: str) -> Callable[..., Awaitable[None]]:
        async def call(*args: Any, **kwargs: Any) -> None:
            self.calls.append((args, kwargs))

        return call


def _bound(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = signature.bind(None, *args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


@pytest.mark.parametrize(
    ("verb", "field", "act"), REFUSED, ids=[f"{verb}-{field}" for verb, field, _ in REFUSED]
)
async def test_a_refused_argument_is_named_and_the_store_is_not_called(
    faults: Faults, verb: str, field: str, act: Try
) -> None:
    """P15: before anything is done."""
    seen: list[StoreCall] = []

    with pytest.raises(InvalidInput) as caught:
        await act(Dispatcher(faults.store, seen.append))

    assert caught.value.facts["field"] == field
    assert faults.calls == {}
    assert seen == []


@pytest.mark.parametrize("verb", ACCEPTED)
async def test_an_observer_sees_the_verb_the_items_and_the_seconds(verb: str) -> None:
    """Metrics and traces are made of these, whatever the store."""
    store = MemoryStore()
    await store.open()
    if verb == "explain":
        await store.enqueue([job("a")])
    seen: list[StoreCall] = []
    items, act = ACCEPTED[verb]

    await act(Dispatcher(store, seen.append))

    [call] = seen
    assert (call.verb, call.items, call.error) == (verb, items, None)
    assert 0 <= call.seconds < 10


async def test_an_observer_is_told_how_much_a_call_found(faults: Faults) -> None:
    """A claim that asks for ten and gets two is a call of two."""
    seen: list[StoreCall] = []
    store = Dispatcher(faults.store, seen.append)
    await store.enqueue([job("a"), job("b"), job("c")])

    await store.claim(Claim(worker="w", nonce="n", limit=2, lease_us=SECOND))
    await store.find(Find(select=ALL))
    await store.events("acme", 0, 100)
    await store.change(Change(select=ALL, act=Act.DELETE))

    found = {call.verb: call.items for call in seen}
    assert found == {"enqueue": 3, "claim": 2, "find": 3, "events": 5, "change": 1}


async def test_an_observer_sees_the_error_of_a_call_that_failed(faults: Faults) -> None:
    """And the caller gets it all the same."""
    seen: list[StoreCall] = []
    faults.fail("ack")

    with pytest.raises(StoreUnavailable):
        await Dispatcher(faults.store, seen.append).ack([TRANSITION])

    assert [(call.verb, call.items, call.error) for call in seen] == [("ack", 1, StoreUnavailable)]


async def test_capabilities_are_those_of_the_store_at_this_moment() -> None:
    """Some are known only when a store is open."""
    store = MemoryStore()
    dispatcher = Dispatcher(store)

    store.capabilities = msgspec.structs.replace(store.capabilities, native_wakeup=False)

    assert not dispatcher.capabilities.native_wakeup


async def test_a_store_without_the_callers_transaction_says_so() -> None:
    """By its own name, not the dispatcher's."""
    with pytest.raises(StoreUnsupported, match="store MemoryStore: does not support enqueue in"):
        await Dispatcher(MemoryStore()).enqueue_using(object(), [job("a")])


def test_every_store_of_an_app_or_a_url_is_behind_one_dispatcher() -> None:
    """No caller can pass the checks by."""
    store = MemoryStore()

    assert App(store).store.inner is store
    assert isinstance(open_store("memory://").inner, MemoryStore)
    wrapped = dispatched(store)
    assert dispatched(wrapped) is wrapped
    assert App(wrapped).store is wrapped
    assert inner_of(wrapped) is inner_of(store) is store
    assert name_of(wrapped) == name_of(store) == "MemoryStore"

"""Isolation (P7) under chance: two tenants' tokens, thousands of verbs, the same few names."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
from tests.servers.service import Host
from tests.stores.remote.conftest import Opened, Tokens

from holdfast.core.clock import SECOND
from holdfast.core.errors import HoldfastError, StoreError
from holdfast.core.job import Completed, Failed, Lease, Outcome, Released
from holdfast.core.lifecycle import decide
from holdfast.core.scope import (
    TENANT_KINDS,
    Scope,
    ScopeKind,
    ScopeSettings,
    encode,
    scope_of,
    slot_scope_of,
)
from holdfast.service.rights import Caller, Right
from holdfast.store import Act, Claim, Extension, Put, Ref, Take
from holdfast.stores.remote.store import RemoteStore
from holdfast.testing.contract.builders import changing, finding, job
from holdfast.worker_registry import PREFIX, Present

TENANTS = ("acme", "acme2", "a/cme")
"""Names that are nearly each other's."""
CALLS = 3000
IDS = tuple(f"j{n}" for n in range(6))
PARTS = ("mail", "2:a/", "")


class Chance:
    """Random calls of one tenant's token; now and then they name another tenant."""

    def __init__(self, seed: int) -> None:
        self.pick = random.Random(seed)
        self.leases: list[Lease] = []
        """Of all tenants: tokens leak in this world."""
        self.claims = 0

    def tenant(self, own: str) -> str:
        return own if self.pick.random() < 0.7 else self.pick.choice(TENANTS)

    def perhaps(self, own: str) -> str | None:
        return None if self.pick.random() < 0.5 else self.tenant(own)

    def scope(self, own: str) -> Scope:
        kind = self.pick.choice(TENANT_KINDS)
        part = "" if kind is ScopeKind.TENANT else self.pick.choice(PARTS[:2])
        return Scope(self.tenant(own), kind, part)

    def call(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        acts: list[Callable[[RemoteStore, str], Awaitable[Any]]] = [
            self.enqueue, self.claim, self.ack, self.extend, self.cancel, self.change, self.find,
            self.count, self.explain, self.events, self.put, self.settings, self.hold, self.holds,
        ]  # fmt: skip
        return self.pick.choice(acts)(store, own)

    def enqueue(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        return store.enqueue([job(self.pick.choice(IDS), tenant=self.tenant(own))])

    def claim(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        self.claims += 1
        other = self.perhaps(own)
        tenants = None if other is None else (own, other)
        nonce = f"n{self.claims}"
        return store.claim(
            Claim(worker="w", nonce=nonce, limit=2, lease_us=60 * SECOND, tenants=tenants)
        )

    def ack(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        if not self.leases:
            return self.find(store, own)
        lease = self.pick.choice(self.leases)
        outcomes: list[Outcome] = [Completed(b"1"), Released(), Failed("no", retryable=False)]
        outcome = self.pick.choice(outcomes)
        change = decide(outcome, lease.job, lease.token, 0.0)
        return store.ack([msgspec.structs.replace(change, tenant=self.tenant(own))])

    def extend(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        token = self.pick.choice(self.leases).token if self.leases else "t"
        id = self.pick.choice(IDS)
        return store.extend(
            [Extension(tenant=self.tenant(own), id=id, token=token, lease_us=SECOND)]
        )

    def cancel(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        return store.cancel([Ref(self.tenant(own), self.pick.choice(IDS))])

    def change(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        act = self.pick.choice(list(Act))
        return store.change(changing(act, self.perhaps(own), ids=(self.pick.choice(IDS),)))

    def find(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        return store.find(finding(self.perhaps(own)))

    def count(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        return store.count(self.perhaps(own), by=self.pick.choice(TENANT_KINDS))

    def explain(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        return store.explain(Ref(self.tenant(own), self.pick.choice(IDS)))

    def events(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        return store.events(self.perhaps(own), 0, 1000)

    def put(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        value = encode(ScopeSettings(max_running=1000))
        return store.settings([Put(self.scope(own).name, value, self.pick.randrange(3))])

    def settings(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        name = self.scope(own).name
        return store.settings(under=name[: self.pick.randrange(len(name) + 1)])

    def hold(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        length = self.pick.choice([0, 60 * SECOND])
        note = Present(1, None, None, (), 1, 0, 0)
        return store.hold(
            [
                Take(f"{PREFIX}w", "w", length, msgspec.json.encode(note).decode()),
                Take(self.scope(own).slot("s"), "s", length, f"of {own}"),
            ]
        )

    def holds(self, store: RemoteStore, own: str) -> Awaitable[Any]:
        slots = self.pick.choice([self.scope(own).slots, PREFIX])
        return store.hold(under=slots[: self.pick.randrange(len(slots) + 1)])


def tenants_in(value: Any) -> Iterator[str]:
    """Every tenant that an answer names, wherever in it."""
    if isinstance(value, msgspec.Struct):
        for field in value.__struct_fields__:
            inner = getattr(value, field)
            if field == "tenant":
                yield inner
            elif field == "name":
                yield from _named(inner)
            elif field == "note" and isinstance(inner, str) and inner.startswith("of "):
                yield inner.removeprefix("of ")
            elif field == "note" and isinstance(inner, str) and '"tenants"' in inner:
                yield from msgspec.json.decode(inner, type=Present).tenants or ("everybody",)
            else:
                yield from tenants_in(inner)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from tenants_in(key)
            yield from tenants_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tenants_in(inner)


def _named(name: str) -> Iterator[str]:
    """The tenant in the name of a setting or a slot."""
    scope = scope_of(name) or slot_scope_of(name)
    if scope is not None:
        yield scope.tenant


async def test_no_answer_names_another_tenant(own_host: Host, opened: Opened) -> None:
    """P7: whatever is asked in any order, with tokens that leaked; and each has what is its own."""
    callers = [
        Caller(name=f"t{n}", tenant=t, rights=frozenset(Right)) for n, t in enumerate(TENANTS)
    ]
    place = own_host.place("isolation", auth=Tokens(*callers))
    stores = {t: await opened(place, f"t{n}") for n, t in enumerate(TENANTS)}
    chance = Chance(6)
    told = refused = faults = 0

    for _ in range(CALLS):
        own = chance.pick.choice(TENANTS)
        try:
            answer = await chance.call(stores[own], own)
        except HoldfastError as error:
            refused += type(error) is StoreError
            faults += "INTERNAL" in str(error)
            continue
        found = set(tenants_in(answer))
        assert found <= {own}, (own, answer)
        told += bool(found)
        if isinstance(answer, list):
            chance.leases += [one for one in answer if isinstance(one, Lease)]

    assert faults == 0
    assert told > CALLS // 10
    assert refused > CALLS // 20
    events = await place.events_behind()
    assert {event.tenant for event in events} == set(TENANTS)

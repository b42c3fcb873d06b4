"""Bad input over the wire: a clear 4xx that names the field, never a 500, and nothing is stored."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest
from tests.servers.service import Host, Inside, Place

from holdfast.core.bounds import BATCH_MAX
from holdfast.core.job import By, Rules, State
from holdfast.core.lifecycle import Transition
from holdfast.core.retry import Backoff, RetryPolicy
from holdfast.store import Act, Claim, Extension, Put, Ref, Take, Watch
from holdfast.stores.remote import wire
from holdfast.stores.remote.client import Sent
from holdfast.stores.remote.errors import Answer
from holdfast.stores.remote.options import Options
from holdfast.testing.contract.builders import ACME, GLOBEX, changing, finding, job


@pytest.fixture
def place(own_host: Host) -> Place:
    return own_host.place("input")


async def send(place: Place, verb: str, body: bytes) -> Answer:
    inside = Inside(place, Options(base="http://x"))
    return await inside.send(Sent(path=f"{wire.PATH}/{verb}", body=body, timeout_s=10.0))


def field_of(answer: Answer) -> str:
    if answer.media == wire.MEDIA:
        told = msgspec.msgpack.decode(answer.body, type=wire.WireError)
        return str(told.facts["field"])
    return str(msgspec.json.decode(answer.body).get("field", "body"))


def new(**changes: Any) -> Any:
    return wire.NewJobs([msgspec.structs.replace(job("a"), **changes)])


def sealed(**changes: Any) -> Any:
    return new(envelope=msgspec.structs.replace(job("a").envelope, **changes))


def act(**changes: Any) -> Any:
    own: dict[str, Any] = {"tenant": ACME, "id": "a", "token": "t", "to": State.COMPLETED}
    return [Transition(**(own | changes))]


def wish(**changes: Any) -> Claim:
    own: dict[str, Any] = {"worker": "w", "nonce": "n", "limit": 1, "lease_us": 1}
    return Claim(**(own | changes))


BAD: list[tuple[str, Any, str]] = [
    ("enqueue", new(id=""), "id"),
    ("enqueue", new(tenant="a\x00"), "tenant"),
    ("enqueue", new(queue="q" * 999), "queue"),
    ("enqueue", new(priority=2**40), "priority"),
    ("enqueue", new(delay_us=-1), "delay_us"),
    ("enqueue", new(run_at=2**63), "run_at"),
    ("enqueue", new(ttl_us=0), "ttl_us"),
    ("enqueue", new(tags=("",)), "tags"),
    ("enqueue", new(origin=""), "origin"),
    ("enqueue", new(rules=Rules(max_attempts=0)), "max_attempts"),
    ("enqueue", new(rules=Rules(keep_us=-1)), "keep_us"),
    (
        "enqueue",
        new(rules=Rules(retry=RetryPolicy(kind=Backoff.LIST, delays_s=()))),
        "retry.delays_s",
    ),
    *(
        (
            "enqueue",
            new(rules=Rules(retry=RetryPolicy(kind=kind, **({"delays_s": (1.0,)} | bad)))),
            f"retry.{next(iter(bad))}",
        )
        for kind in Backoff
        for bad in (
            {"base_s": math.nan},
            {"factor": math.inf},
            {"cap_s": math.nan},
            {"delays_s": (1.0, math.nan)},
        )
    ),
    ("enqueue", sealed(type=""), "type"),
    ("enqueue", sealed(codec="object"), "codec"),
    ("enqueue", sealed(version=-1), "version"),
    ("enqueue", sealed(version=2**31), "version"),
    ("enqueue", new(run_at=-1), "run_at"),
    ("enqueue", sealed(body={"a": 1}), "payload"),
    ("enqueue", sealed(body=None), "payload"),
    ("enqueue", [], "body"),
    ("enqueue", {"jobs": [], "whole": "yes"}, "whole"),
    ("enqueue", {"jobs": [{"tenant": ACME}]}, "jobs[0].id"),
    ("enqueue", {"jobs": [7]}, "jobs[0]"),
    ("enqueue", new(ends_with_parents=True), "ends_with_parents"),
    ("enqueue", {"jobs": [{"tenant": ACME, "ends_with_parents": 2}]}, "jobs[0].ends_with_parents"),
    ("enqueue", wire.NewJobs([job("a"), job("b", tenant=GLOBEX)], whole=True), "jobs"),
    ("claim", wish(worker=""), "worker"),
    ("claim", wish(nonce=""), "nonce"),
    ("claim", wish(nonce="a.b"), "nonce"),
    ("claim", wish(nonce="a~"), "nonce"),
    ("claim", wish(limit=5000), "limit"),
    ("claim", wish(limit=-1), "limit"),
    ("claim", wish(lease_us=-1), "lease_us"),
    ("claim", wish(queues=("\n",)), "queues"),
    ("claim", {"worker": "w"}, "nonce"),
    ("extend", [Extension(tenant=ACME, id="a", token="", lease_us=1)], "token"),
    ("extend", [Extension(tenant=ACME, id="a", token="t", lease_us=2**62)], "lease_us"),
    (
        "extend",
        [Extension(tenant=ACME, id="a", token="t", lease_us=1, progress="p" * 2000)],
        "progress",
    ),
    ("extend", [Extension(tenant=ACME, id="a", token="t." + "9" * 20, lease_us=1)], "token"),
    ("ack", act(token=f"t.{2**63}"), "token"),
    ("ack", act(to=State.PROCESSING), "to"),
    ("ack", act(to=State.CANCELED), "to"),
    ("ack", act(give_back=True), "give_back"),
    ("ack", act(result="text"), "result"),
    ("ack", act(result=b"x" * 100_000), "result"),
    ("ack", act(delay_us=-1), "delay_us"),
    ("ack", act(id=""), "id"),
    ("cancel", wire.Refs([Ref(ACME, "")]), "id"),
    ("cancel", wire.Refs([Ref(ACME, "a")] * (BATCH_MAX + 1)), "refs"),
    ("cancel", wire.Refs([Ref(ACME, "a")], By("ann\n")), "author"),
    ("change", changing(Act.RESCHEDULE, run_at=2**63), "run_at"),
    ("change", changing(Act.DELETE, after=-5), "after"),
    ("change", changing(Act.DELETE, limit=10**6), "limit"),
    ("find", finding(ids=("\x00",)), "ids"),
    ("find", finding(after=2**64 - 1), "after"),
    ("find", finding(tags=("t" * 99,)), "tags"),
    ("find", finding(created_from=2**64 - 1), "created_from"),
    ("count", wire.Counting(tenant=" ", limit=1), "tenant"),
    ("count", wire.Counting(tenant=None, part="\x00"), "part"),
    ("count", wire.Counting(tenant=None, limit=-1), "limit"),
    ("events", wire.Reading(tenant=None, after=-2, limit=1), "after"),
    ("events", wire.Reading(tenant=None, after=0, limit=1, job_id="\x00"), "job_id"),
    ("explain", Ref(ACME, "\x00"), "id"),
    ("expired", wire.Limit(10**6), "limit"),
    ("prune", wire.Pruning(1, -1), "events_keep_us"),
    ("settings", wire.Under("\x00"), "under"),
    ("put", wire.Puts([Put("", b"", 0)]), "name"),
    ("put", wire.Puts([Put("scope/world/1:a/", b"{}", 0)]), "scope"),
    ("put", wire.Puts([Put("x", b"", -1)]), "version"),
    ("holds", wire.Under("\x00"), "under"),
    ("hold", wire.Takes([Take("x", "", 1)]), "owner"),
    ("hold", wire.Takes([Take("x", "w", -1)]), "length_us"),
    ("hold", wire.Takes([Take("x", "w", 1, "\x00")]), "note"),
    ("wait", wire.Sleep(Watch(), float("nan")), "timeout_s"),
    ("wait", wire.Sleep(Watch(tenants=("",)), 0.0), "tenants"),
    ("watch", wire.Sleep(Watch(), 0.0), "watch"),
    ("watch", wire.Sleep(Watch(job=Ref(ACME, "")), 0.0), "id"),
]


@pytest.mark.parametrize(("verb", "value", "field"), BAD, ids=lambda one: str(one)[:40])
async def test_a_bad_value_is_refused_by_its_field(
    place: Place, verb: str, value: Any, field: str
) -> None:
    """Whoever sends it, and whatever our own client would have checked before."""
    answer = await send(place, verb, wire.encode(value))

    assert answer.status in (413, 422), answer
    assert field_of(answer) == field
    assert (await place.events_behind()) == []


@pytest.mark.parametrize("verb", ["enqueue", "claim", "ack", "hold", "wait", "find"])
@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"{}", b"\x93\x01", b"\x91" * 5000, b"\xdf\xff\xff\xff\xff", b"\xa2\xff\xfe"],
)
async def test_what_is_no_msgpack_is_refused(place: Place, verb: str, body: bytes) -> None:
    """Cut, nested, or lying about its size."""
    answer = await send(place, verb, body)

    assert answer.status in (400, 422), answer


async def test_another_media_type_is_refused(place: Place) -> None:
    """So that a page of another site cannot make a browser send it."""

    class Other(Inside):
        def _scope(self, sent: Sent) -> dict[str, Any]:
            scope = super()._scope(sent)
            scope["headers"] = [(b"content-type", b"application/json")]
            return scope

    inside = Other(place, Options(base="http://x"))
    answer = await inside.send(Sent(path=f"{wire.PATH}/enqueue", body=b"[]", timeout_s=10.0))

    assert answer.status == 415
    assert b"application/msgpack" in answer.body

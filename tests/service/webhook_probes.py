"""What a token can try with webhooks: acts of docs/security.md."""

from __future__ import annotations

from tests.service.probing import RECEIVER, Place, Probe, Target, done, native, verb

from holdfast.core.job import Event, EventKind, NewJob
from holdfast.store import Put
from holdfast.stores.remote import wire
from holdfast.webhooks.definition import (
    SECRET_PREFIX,
    Key,
    Secrets,
    Webhook,
    encode,
    name_of,
    under,
)
from holdfast.webhooks.delivery import of_event

WEBHOOK = "/v1/webhooks/{id}"


def delivery(target: Target) -> NewJob:
    """A delivery of an event that never happened."""
    event = Event(1, 0, EventKind.COMPLETED, target.tenant, "paid", "mail", "send", 1, 1)
    hook = Webhook(id="x", url=RECEIVER, made_by="x", made_at=1)
    return of_event(hook, target.id, event)


async def hook_put(at: Place, target: Target) -> bool:
    hook = Webhook(id="x", url=RECEIVER, made_by="x", made_at=1)
    put = Put(name_of(target.tenant, target.id), encode(hook), 1)
    return done(await at.packed(target, "put", wire.Puts([put], None)))


async def secret_put(at: Place, target: Target) -> bool:
    value = encode(Secrets((Key("whsec_of-the-tests-alone"),)))
    put = Put(name_of(target.tenant, target.id, SECRET_PREFIX), value, 1)
    return done(await at.packed(target, "put", wire.Puts([put], None)))


WEBHOOK_ACTS: dict[str, tuple[Probe, ...]] = {
    "read a webhook": (
        native("GET", WEBHOOK),
        native("GET", "/v1/webhooks"),
        verb("settings", lambda t: wire.Under(name_of(t.tenant, t.id))),
    ),
    "make, change, pause, resume or test a webhook": (
        native("PUT", WEBHOOK, {"attempts": 3}),
        native("PUT", f"{WEBHOOK}-new", {"url": RECEIVER}),
        native("POST", f"{WEBHOOK}/pause", {"reason": "x"}),
        native("POST", f"{WEBHOOK}/resume"),
        native("POST", f"{WEBHOOK}/test"),
        native("DELETE", WEBHOOK),
        hook_put,
    ),
    "replace the secret of a webhook": (native("POST", f"{WEBHOOK}/rotate"), secret_put),
    "read the secret of a webhook": (
        verb("settings", lambda t: wire.Under(name_of(t.tenant, t.id, SECRET_PREFIX))),
        verb("settings", lambda t: wire.Under(under(t.tenant, SECRET_PREFIX))),
    ),
    "enqueue a delivery of a webhook": (verb("enqueue", lambda t: wire.NewJobs([delivery(t)])),),
}

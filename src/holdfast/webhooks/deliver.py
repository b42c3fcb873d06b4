"""What a delivery does when it runs: it signs its event and sends it, once in each attempt.

The policy of the job decides about further attempts, so a slow receiver holds a worker for one
time-out only. The last failure makes a dead letter, which can be replayed as any other.
"""

from __future__ import annotations

import base64
import importlib
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast.breaker import Breaker
from holdfast.config import Config
from holdfast.context import Context, Fail, Retry, Snooze
from holdfast.core.codec import JSON, json_fault
from holdfast.core.edge_bounds import WEBHOOK_HOSTS_MAX, WEBHOOK_INCLUDE_MAX
from holdfast.core.errors import HoldfastError, MissingExtra, OutboundRefused
from holdfast.core.job import JobRecord, Rules
from holdfast.outbound.address import host_of
from holdfast.outbound.request import KEY_HEADER, Request
from holdfast.outbound.tries import Caller, Timing, Transport
from holdfast.store import Find, Selection, Store
from holdfast.typed import JobFunction, JobType, Style
from holdfast.webhooks import stored
from holdfast.webhooks.definition import QUEUE, TYPE, Include, Secrets, Webhook
from holdfast.webhooks.lookup import Lookup, Resolve, system
from holdfast.webhooks.networks import allowed
from holdfast.webhooks.signing import (
    ATTEMPT_HEADER,
    DELIVERY_HEADER,
    SIGNATURE_HEADER,
    signature,
)
from holdfast.webhooks.stored import WebhookState

logger = logging.getLogger("holdfast.webhooks")

TIMEOUT_S = 10.0
"""Of one attempt, from the look-up of the name to the status of the answer."""
FAILURES = 10
REST_S = 30.0
"""So many failures in a row leave a host of a tenant alone for this time, in this process."""
PAUSED_S = 300.0
"""When a delivery looks again whose webhook was paused just before it ran."""
GONE = 410


class Delivering:
    """Sends the deliveries of a store."""

    def __init__(
        self,
        store: Store,
        config: Config,
        *,
        resolve: Resolve = system,
        timing: Timing = Timing(),  # noqa: B008 (it is frozen)
    ) -> None:
        self._store = store
        self._allow = allowed(config.webhooks_allow)
        self._lookup = Lookup(resolve)
        self._timing = timing
        self._hosts: OrderedDict[tuple[str, str], tuple[Breaker, Caller]] = OrderedDict()

    async def run(self, ctx: Context, hook: str, of: str, event: dict[str, Any]) -> str:
        """Sends the event. Returns how it ended."""
        found = await stored.state(self._store, ctx.tenant, hook)
        if found is None:
            return "not sent: the webhook was deleted"
        definition = found.definition
        if definition is None:
            raise Retry(f"webhook {hook!r} {found.fault}; set it again")
        if definition.id != of:
            return "not sent: the webhook was deleted, and another one has its name"
        if definition.paused is not None:
            raise Snooze(PAUSED_S)
        secrets, _ = await stored.secrets_of(self._store, ctx.tenant, hook)
        if secrets is None:
            raise Retry(f"the secret of webhook {hook!r} cannot be read; rotate it")
        body = await self._body(ctx, definition, event)
        return await self._send(ctx, found, self._request(ctx, definition, secrets, event, body))

    # -- what is sent ----------------------------------------------------------------------------

    async def _body(self, ctx: Context, hook: Webhook, event: dict[str, Any]) -> bytes:
        """The event, with what the webhook asks for of its job as it is now."""
        told = dict(event)
        parts = [one for one in hook.include if one is not Include.ERROR]
        id = event.get("job_id")
        if parts and isinstance(id, str):
            select = Selection(tenant=ctx.tenant, ids=(id,))
            page = await self._store.find(Find(select=select, limit=1))
            job = page.jobs[0] if page.jobs else None
            left = [part.value for part in parts if not _added(told, part, job)]
            if left:
                told["left_out"] = left
        return msgspec.json.encode(told)

    def _request(
        self, ctx: Context, hook: Webhook, secrets: Secrets, event: dict[str, Any], body: bytes
    ) -> Request:
        id = str(event.get("id", ctx.job_id))
        # By the store's clock, at the claim. What receivers compare is the clock of this machine.
        keys = secrets.signing(ctx.job.updated_at)
        own = {name: secrets.headers[name] for name in hook.headers if name in secrets.headers}
        headers = {
            **own,
            "content-type": "application/json",
            "user-agent": "holdfast",
            SIGNATURE_HEADER.lower(): signature(keys, int(self._timing.now()), body),
            DELIVERY_HEADER.lower(): id,
            ATTEMPT_HEADER.lower(): str(ctx.attempt),
            KEY_HEADER: id,
        }
        return Request(
            method="POST",
            url=hook.url,
            place=host_of(hook.url),  # Its path may be secret, as with chat services.
            headers=headers,
            body=body,
            repeats=True,
            timeout_s=TIMEOUT_S,
            budget_s=TIMEOUT_S,
            once=True,
        )

    # -- sending ---------------------------------------------------------------------------------

    async def _send(self, ctx: Context, found: WebhookState, request: Request) -> str:
        breaker, caller = self._host(ctx.tenant, request.place)
        if breaker.resting_s > 0:
            # It costs no attempt: nothing was sent. Spread, so that they do not come back together.
            raise Snooze(breaker.resting_s + REST_S * self._timing.chance())
        try:
            answer = await caller.call(ctx, request)
        except (Retry, OutboundRefused) as error:
            await self._failed(ctx, found, str(error))
            if isinstance(error, Retry):
                raise
            raise Retry(str(error)) from None  # Without a traceback in the log of the worker.
        if answer.ok:
            await self._noted(stored.worked(self._store, found))
            return f"sent: status {answer.status}"
        why = f"{request.place} answered {answer.status}"
        if answer.status == GONE:
            await self._failed(ctx, found, f"{why}: it wants no more", gone=True)
            raise Fail(why)
        await self._failed(ctx, found, why)
        raise Retry(why)

    def _host(self, tenant: str, host: str) -> tuple[Breaker, Caller]:
        """The circuit of a host, of this tenant alone: receivers of many tenants share the host of
        a provider, and those of one tenant must not stop the deliveries of the others.
        """
        key = (tenant, host)
        found = self._hosts.pop(key, None)
        if found is None:
            breaker = Breaker(FAILURES, REST_S, self._timing.clock)
            transport = _sender(tenant, self._allow, self._lookup)
            found = breaker, Caller(transport, breaker, self._timing, lower=False)
        self._hosts[key] = found
        if len(self._hosts) > WEBHOOK_HOSTS_MAX:
            self._hosts.popitem(last=False)
        return found

    async def _failed(
        self, ctx: Context, found: WebhookState, why: str, *, gone: bool = False
    ) -> None:
        now = ctx.job.updated_at
        await self._noted(stored.failed(self._store, found, why, now, gone=gone))

    async def _noted(self, note: Any) -> None:
        """Awaits a note. What is told about the webhook must not decide about the delivery."""
        try:
            await note
        except HoldfastError as error:
            logger.warning("the state of a webhook was not noted: %s", error)


def _sender(tenant: str, *parts: Any) -> Transport:
    try:
        module: Any = importlib.import_module("holdfast.webhooks.sender")
    except ModuleNotFoundError as error:
        raise MissingExtra(
            field="webhooks", what="deliveries of webhooks", package=error.name, extra="outbound"
        ) from None
    transport: Transport = module.Sender(tenant, *parts)
    return transport


def _added(told: dict[str, Any], part: Include, job: JobRecord | None) -> bool:
    """Adds the payload or the result, if it is there and not too large."""
    if job is None:
        return False
    value = job.envelope.body if part is Include.PAYLOAD else job.result
    if part is Include.RESULT and value is None:
        return True  # The job has none.
    if not isinstance(value, bytes):
        try:
            value = msgspec.json.encode(value)
        except (TypeError, ValueError, msgspec.MsgspecError):
            return False
        json = True
    else:
        json = job.envelope.codec == JSON and json_fault(value) is None
    if len(value) > WEBHOOK_INCLUDE_MAX:
        return False
    if json:
        told[part.value] = msgspec.Raw(value)
    else:
        told[f"{part.value}_base64"] = base64.b64encode(value).decode()
    return True


def webhook_type(delivering: Callable[[], Delivering]) -> JobType:
    """The job type of deliveries, which every app has."""

    async def deliver(ctx: Context, *, hook: str, of: str, event: dict[str, Any]) -> str:
        return await delivering().run(ctx, hook, of, event)

    return JobType(
        name=TYPE,
        kind=JobFunction(deliver, TYPE).kind,
        queue=QUEUE,
        priority=0,
        rules=Rules(),
        style=Style.LOOP,
        version=1,
        upgrades={},
        codec=JSON,
        home="holdfast itself",
        built_in=True,
    )

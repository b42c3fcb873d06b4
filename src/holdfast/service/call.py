"""One parsed request, as every handler gets it: the caller, the tenant and the values."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request

from holdfast.core.bounds import GROUP_MAX, ID_MAX, QUEUE_MAX, TENANT_MAX
from holdfast.core.check import check_name
from holdfast.core.errors import InvalidInput
from holdfast.core.job import By
from holdfast.core.scope import TENANT_KINDS, Scope, ScopeKind
from holdfast.explain import Reader
from holdfast.fields import unfit
from holdfast.operate import author
from holdfast.service.problems import BodyTooLarge, NotFound, NotJson
from holdfast.service.rights import Caller, Forbidden
from holdfast.service.standing import Standing
from holdfast.store import Ref
from holdfast.tenant import Tenant

if TYPE_CHECKING:
    from holdfast.service.service import Service

TENANT_HEADER = b"holdfast-tenant"
REASON_HEADER = b"holdfast-reason"
"""Header with the reason of an operator's action, stored in the event."""
SLASH = "\x00"
"""Replaces an encoded slash in a path during routing; see `guard.readable`."""


class Call:
    """One request. Cheap, because one is created for each request."""

    __slots__ = ("body", "caller", "query", "request", "service", "tenant_name")

    def __init__(
        self, service: Service, request: Request, caller: Caller, tenant_name: str | None
    ) -> None:
        self.service = service
        self.request = request
        self.caller = caller
        self.tenant_name = tenant_name
        self.body: Any = None
        self.query: Any = None

    @property
    def tenant(self) -> str:
        """The tenant, for routes that need one; the endpoint has checked that it is present."""
        assert self.tenant_name is not None
        return self.tenant_name

    @property
    def view(self) -> Tenant:
        """The handle for the calls of the tenant."""
        return self.service.tenant(self.tenant)

    def part(self, name: str) -> str:
        """A decoded segment of the path."""
        text: str = self.request.path_params[name]
        return text.replace(SLASH, "/")

    def job(self) -> Ref:
        return Ref(self.tenant, check_name("id", self.part("id"), ID_MAX))

    def scope(self) -> Scope:
        """The scope that the path names."""
        params = self.request.path_params
        if "kind" not in params:
            return Scope(self.tenant)
        try:
            kind = ScopeKind(self.part("kind"))
        except ValueError:
            raise NotFound(what=f"scope {self.part('kind')!r}") from None
        if kind is ScopeKind.TENANT:
            raise NotFound(what="a part of a tenant's scope")
        if kind not in TENANT_KINDS:
            raise NotFound(what=f"{kind.value} of a tenant; see /v1/platform")
        name = check_name("name", self.part("name"), max(QUEUE_MAX, GROUP_MAX))
        if kind is ScopeKind.QUEUE:
            self.caller.check_queue(name)
        return Scope(self.tenant, kind, name).checked()

    @property
    def reader(self) -> Reader:
        """What the caller may see of an explanation."""
        caller = self.caller
        return Reader(
            own=caller.tenant is not None,
            platform=caller.platform,
            all_queues=caller.queues is None,
        )

    @property
    def by(self) -> By:
        """The author (the name of the token) and the reason (from the header)."""
        reason = (self.header(REASON_HEADER) or "").encode("latin-1").decode("utf-8", "replace")
        return By(author(self.caller.name), reason).checked()

    def header(self, name: bytes) -> str | None:
        return header(self.request, name)

    def standing(self) -> Standing:
        """Checks during a long call that the caller is still allowed."""
        return Standing(self.service, self.request, lambda caller: caller == self.caller)

    def gone(self) -> asyncio.Future[Any]:
        """A task that is done when the client has disconnected; cancel it when it is not needed."""
        return asyncio.ensure_future(self._gone())

    async def _gone(self) -> None:
        """Waits for the disconnect. The rest of the body, even if empty, comes first."""
        with suppress(BodyTooLarge):  # No further message can arrive: treat it as disconnected.
            while (await self.request.receive())["type"] != "http.disconnect":
                pass


def header(request: Request, name: bytes) -> str | None:
    """The value of a header, from the dict that the guard has built."""
    value: bytes | None = request.scope["named_headers"].get(name)
    return None if value is None else value.decode("latin-1")


def tenant_of(caller: Caller, header: str | None, default: str | None = None) -> str:
    """The tenant of a call: that of the token, the one in the header, or the service's default."""
    if caller.tenant is None:
        header = default if header is None else header
        if header is None:
            why = "is required, because this caller may act for any tenant"
            raise InvalidInput(field="Holdfast-Tenant", why=why)
        return check_name("Holdfast-Tenant", header, TENANT_MAX)
    if header is not None and header != caller.tenant:
        raise Forbidden(why="this token is for another tenant")
    return caller.tenant


def decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """The decoded body. Errors name the invalid field."""
    try:
        body.decode()  # Raw parts are not decoded here, but they must be valid text.
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise unfit(error, decoder.type) from None
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        why = "it is empty" if not body else f"it is not JSON: {error}"
        raise NotJson(why=why) from None
    except RecursionError:
        raise NotJson(why="it is nested too deeply") from None


def queried(kind: Any, request: Request) -> Any:
    """The decoded query string. Values of a list are separated by commas."""
    params = request.query_params
    values: dict[str, Any] = {}
    for name, value in params.multi_items():
        if name in values:
            raise InvalidInput(field=name, why="is given twice; separate values by commas")
        values[name] = value.split(",") if name in kind.LISTS else value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise unfit(error, kind) from None

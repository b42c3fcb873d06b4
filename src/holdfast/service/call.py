"""One request, understood: who calls, for whom, with what. What every handler gets."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request

from holdfast.check import check_name
from holdfast.errors import InvalidInput, did_you_mean
from holdfast.job import By
from holdfast.limits import GROUP_MAX, ID_MAX, QUEUE_MAX, TENANT_MAX
from holdfast.operate import author
from holdfast.scope import Scope, ScopeKind
from holdfast.service.problems import BodyTooLarge, NotFound, NotJson
from holdfast.service.rights import Caller, Forbidden
from holdfast.service.standing import Standing
from holdfast.store import Ref
from holdfast.tenant import Tenant

if TYPE_CHECKING:
    from holdfast.service.service import Service

TENANT_HEADER = b"holdfast-tenant"
REASON_HEADER = b"holdfast-reason"
"""Why an operator does something: kept in the event."""
SLASH = "\x00"
"""Stands for an encoded slash in a path while it is routed; see `guard.readable`."""

_PLACE = re.compile(r"at `(?:key in )?\$(.*?)`")
_FIELD = re.compile(r"(?:required|unknown) field `(.*?)`")


class Call:
    """Cheap: made for each request."""

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
        """For routes that need one; the endpoint saw to it that there is one."""
        assert self.tenant_name is not None
        return self.tenant_name

    @property
    def view(self) -> Tenant:
        """The tenant's own view of the queue."""
        return self.service.tenant(self.tenant)

    def part(self, name: str) -> str:
        """A segment of the path, decoded."""
        text: str = self.request.path_params[name]
        return text.replace(SLASH, "/")

    def job(self) -> Ref:
        return Ref(self.tenant, check_name("id", self.part("id"), ID_MAX))

    def scope(self) -> Scope:
        """The one that the path names."""
        params = self.request.path_params
        if "kind" not in params:
            return Scope(self.tenant)
        try:
            kind = ScopeKind(self.part("kind"))
        except ValueError:
            raise NotFound(what=f"scope {self.part('kind')!r}") from None
        if kind is ScopeKind.TENANT:
            raise NotFound(what="a part of a tenant's scope")
        name = check_name("name", self.part("name"), max(QUEUE_MAX, GROUP_MAX))
        if kind is ScopeKind.QUEUE:
            self.caller.check_queue(name)
        return Scope(self.tenant, kind, name).checked()

    @property
    def by(self) -> By:
        """Who acts, by its token, and why, by its own word."""
        reason = (self.header(REASON_HEADER) or "").encode("latin-1").decode("utf-8", "replace")
        return By(author(self.caller.name), reason).checked()

    def header(self, name: bytes) -> str | None:
        return header(self.request, name)

    def standing(self) -> Standing:
        """To ask, while the call lasts, whether its caller still may."""
        return Standing(self.service, self.request, lambda caller: caller == self.caller)

    def gone(self) -> asyncio.Future[Any]:
        """Done when the client has left; cancel it when nobody asks any more."""
        return asyncio.ensure_future(self._gone())

    async def _gone(self) -> None:
        """What is left of a body, and the empty one of a GET, comes before the hang-up."""
        with suppress(BodyTooLarge):  # Told by nobody any more: as good as gone.
            while (await self.request.receive())["type"] != "http.disconnect":
                pass


def header(request: Request, name: bytes) -> str | None:
    """A header's value; the guard has made a look-up of them."""
    value: bytes | None = request.scope["named_headers"].get(name)
    return None if value is None else value.decode("latin-1")


def tenant_of(caller: Caller, header: str | None) -> str:
    """The tenant of a call: the token's own, or the one that the header names."""
    if caller.tenant is None:
        if header is None:
            why = "name the tenant: this caller may act for any"
            raise InvalidInput(field="Holdfast-Tenant", why=why)
        return check_name("Holdfast-Tenant", header, TENANT_MAX)
    if header is not None and header != caller.tenant:
        raise Forbidden(why="this token is for another tenant")
    return caller.tenant


def decoded(decoder: msgspec.json.Decoder[Any], body: bytes) -> Any:
    """The body in its shape; what is wrong is told by field."""
    try:
        body.decode()  # Raw parts are not read here, and shall be text all the same.
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise unfit(error, decoder.type) from None
    except (UnicodeDecodeError, msgspec.DecodeError) as error:
        why = "it is empty" if not body else f"it is not JSON: {error}"
        raise NotJson(why=why) from None
    except RecursionError:
        raise NotJson(why="it is nested too deeply") from None


def queried(kind: Any, request: Request) -> Any:
    """The query string in its shape; lists are separated by commas."""
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


def unfit(error: msgspec.ValidationError, kind: Any) -> InvalidInput:
    """The field that does not fit, and why."""
    text = str(error)
    place, named = _PLACE.search(text), _FIELD.search(text)
    field = (place[1] if place else "").strip(".")
    why, hint = text.partition(" - at ")[0], ""
    if named is not None:
        field = f"{field}.{named[1]}".strip(".")
        if "unknown" in text and hasattr(kind, "__struct_fields__"):
            hint = did_you_mean(named[1], kind.__struct_fields__)
        why = "is missing" if "missing" in text else f"there is no such field.{hint}"
    return InvalidInput(field=field or "body", why=why)

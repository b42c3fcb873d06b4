"""Who may do what: every route of the table is walked with every wrong token, and the right one.

The walk reads the table, so a route that is added is walked too.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import time
from collections.abc import AsyncIterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from tests.service.asgi import Answer, Client
from tests.service.calls import JSON_BODIES, PACKED_BODIES, Pick, made, needs_body
from tests.service.minted import mint, refused, serving, tokens

import holdfast.service
from holdfast.core.errors import HoldfastError
from holdfast.service.auth.claims import ALL_TENANTS
from holdfast.service.endpoint import Route
from holdfast.service.problems import fault
from holdfast.service.rights import Caller, Forbidden, Right, rights
from holdfast.service.routes import ROUTES

GUARDED = [route for route in ROUTES if route.right is not None]
OPEN = [route for route in ROUTES if route.right is None]


async def call(
    client: Client, route: Route, token: str | None, tenant: str = "acme", **headers: str
) -> Answer:
    """A call that is good but for its token. Of a stream only the beginning is read."""
    if token is not None:
        headers["authorization"] = f"Bearer {token}"
    said = made(route, Pick([tenant]))
    async with client.open(route.method, said.path, said.body, **said.headers, **headers) as talk:
        if not route.streams:
            return await talk.answer()
        status, found = await talk.start()
        body = b"" if status == 200 else b"".join([part async for part in talk.parts()])
        return Answer(status, found, body)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    """A service that asks for tokens; the tenant acme has a job."""
    async with serving(tokens()) as found:
        made = await found.post(
            "/v1/jobs", {"type": "mail", "id": "one"}, authorization=f"Bearer {mint()}"
        )
        assert made.status == 201
        yield found


def named(route: Route) -> str:
    return route.name


def granting(*granted: Right, **claims: Any) -> str:
    """A token with these rights; for every tenant if they are enough for that."""
    return mint(scope=" ".join(granted), **claims)


EVERY_TENANT: dict[str, Any] = {ALL_TENANTS: True}


def service_token(*granted: Right) -> str:
    return mint(scope=" ".join((*granted, Right.ADMIN)), **EVERY_TENANT)


def test_every_body_of_the_table_is_known_here() -> None:
    """A walk with an empty body would stop at the body, not at the token."""
    needed = {route.name for route in ROUTES if needs_body(route)}

    assert needed == JSON_BODIES.keys() | PACKED_BODIES.keys()


# -- no token that holds ---------------------------------------------------------------------------

NOW = time.time()
WORTHLESS = {
    "none": None,
    "garbage": "garbage",
    "three parts of garbage": "a.b.c",
    "expired": mint(exp=NOW - 60),
    "not yet valid": mint(nbf=NOW + 24 * 3600),
    "of another issuer": mint(iss="https://evil.test/"),
    "for another audience": mint(aud="elsewhere"),
    "signed by another": mint(number=1),
    "of another algorithm": mint("ES256"),
}


@pytest.mark.parametrize("route", GUARDED, ids=named)
async def test_without_a_token_that_holds_nothing_is_served(client: Client, route: Route) -> None:
    """401, whatever is wrong with it, and before anything else is looked at."""
    for token in WORTHLESS.values():
        refused(await call(client, route, token), 401)
        refused(await call(client, route, token, holdfast_tenant="acme"), 401)


@pytest.mark.parametrize("route", OPEN, ids=named)
async def test_what_is_open_needs_no_token(client: Client, route: Route) -> None:
    """And is not closed by a bad one."""
    for token in WORTHLESS.values():
        assert (await call(client, route, token)).status == 200


def test_only_probes_and_greetings_are_open() -> None:
    """Whoever opens another route says so here."""
    assert {route.name for route in OPEN} == {"alive", "ready", "store_hello"}


# -- a token without the right ---------------------------------------------------------------------


def too_little(needed: Right) -> list[tuple[Right, ...]]:
    """Every set of rights that does not include what is needed."""
    sets = [some for size in range(len(Right)) for some in combinations(Right, size)]
    return [some for some in sets if needed not in rights(some)]


@pytest.mark.parametrize("route", GUARDED, ids=named)
async def test_without_its_right_a_route_is_forbidden(client: Client, route: Route) -> None:
    """For every set of rights that lacks it."""
    assert route.right is not None
    sets = too_little(route.right)
    assert sets

    for some in sets:
        refused(await call(client, route, granting(*some)), 403)


@pytest.mark.parametrize("route", GUARDED, ids=named)
async def test_with_its_right_alone_a_route_is_served(client: Client, route: Route) -> None:
    """Let through: what comes of it is the route's own affair, and no fault."""
    assert route.right is not None
    one = route.tenant is not False
    answer = await call(client, route, (granting if one else service_token)(route.right))

    assert answer.status not in (401, 403), answer
    assert answer.status < 500, answer


@pytest.mark.parametrize("route", GUARDED, ids=named)
async def test_another_tenants_token_is_not_let_through(client: Client, route: Route) -> None:
    """Neither for the tenant it names nor for what is about every tenant."""
    theirs = granting(*Right, tid="globex")

    refused(await call(client, route, theirs, holdfast_tenant="acme"), 403)
    alone = await call(client, route, theirs)
    if route.tenant:
        assert b"acme" not in alone.body
    else:  # It is about every tenant, or the call itself names acme.
        refused(alone, 403)


@pytest.mark.parametrize("route", GUARDED, ids=named)
async def test_contradictory_tenants_are_forbidden_everywhere(client: Client, route: Route) -> None:
    """A token that names two."""
    refused(await call(client, route, granting(*Right, tid="acme", tenant_id="globex")), 403)


@pytest.mark.parametrize("route", [r for r in GUARDED if r.tenant], ids=named)
async def test_a_service_token_must_name_its_tenant(client: Client, route: Route) -> None:
    """By the header; then it is let through."""
    token = service_token()

    unnamed = await call(client, route, token)
    assert (unnamed.status, unnamed.json["field"]) == (422, "Holdfast-Tenant")
    answer = await call(client, route, token, holdfast_tenant="acme")
    assert answer.status not in (401, 403, 422), answer


# -- rules of rights -------------------------------------------------------------------------------


def test_admin_includes_all_and_operate_includes_reading() -> None:
    """Nothing else includes anything."""
    assert rights([Right.ADMIN]) == set(Right)
    assert rights([Right.OPERATE]) == {Right.OPERATE, Right.READ}
    for right in (Right.PRODUCE, Right.WORK, Right.READ):
        assert rights([right]) == {right}


def test_every_route_states_its_right() -> None:
    """What changes something asks for more than reading."""
    for route in GUARDED:
        if route.method != "GET" and not route.hidden:  # Those carry a question in their body.
            assert route.right is not Right.READ, route.name


# -- some queues and types only --------------------------------------------------------------------

MAIL: dict[str, Any] = {"queues": ["mail"], "types": ["send"]}


@pytest.fixture
async def narrow(client: Client) -> Client:
    """Everything, but only in the queue mail and with the type send; another queue has a secret."""
    everybody = {"authorization": f"Bearer {mint()}"}
    for job in (
        {"type": "send", "queue": "mail", "id": "mine", "group": "g"},
        {"type": "pay", "queue": "bank", "id": "theirs", "group": "g", "payload": "SECRET"},
    ):
        assert (await client.post("/v1/jobs", job, **everybody)).status == 201
    paused = await client.post("/v1/scopes/queue/bank/pause", {"reason": "SECRET"}, **everybody)
    assert paused.status == 200
    return client.with_headers(authorization=f"Bearer {mint(**MAIL)}")


async def test_a_narrow_token_does_what_it_is_for(narrow: Client) -> None:
    """In its queue, with its type."""
    assert (await narrow.post("/v1/jobs", {"type": "send", "queue": "mail"})).status == 201
    assert (await narrow.get("/v1/jobs/mine")).status == 200
    leases = (await narrow.post("/v1/claim", {"limit": 10})).json["leases"]
    assert {lease["job"]["queue"] for lease in leases} == {"mail"}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/jobs", {"type": "send", "queue": "bank"}),
        ("POST", "/v1/jobs", {"type": "send"}),
        ("POST", "/v1/jobs", {"type": "pay", "queue": "mail"}),
        ("POST", "/v1/jobs/batch", {"jobs": [{"type": "send", "queue": "bank"}]}),
        ("POST", "/v1/claim", {"queues": ["bank"]}),
        ("POST", "/v1/claim", {"queues": ["mail", "bank"]}),
        ("GET", "/v1/jobs?queue=bank", None),
        ("GET", "/v1/dead?queue=bank", None),
        ("POST", "/v1/dead/replay?queue=bank", None),
        ("POST", "/v1/dead/purge?queue=mail,bank", None),
        ("GET", "/v1/load?queue=bank", None),
        ("GET", "/v1/scopes/queue/bank", None),
        ("GET", "/v1/scopes/queue/bank/counts", None),
        ("PATCH", "/v1/scopes/queue/bank", {"max_running": 1}),
        ("POST", "/v1/scopes/queue/bank/pause", {"reason": "x"}),
        ("POST", "/v1/scopes/queue/bank/resume", None),
        ("PUT", "/v1/scopes/queue/bank/slots/s", {"seconds": 1}),
    ],
    ids=str,
)
async def test_another_queue_or_type_is_forbidden(
    narrow: Client, method: str, path: str, body: Any
) -> None:
    """Where the call names it."""
    refused(await narrow.call(method, path, body), 403)


@pytest.mark.parametrize("act", ["", "/result", "/explain", "/events", "/cancel", "/replay"])
async def test_a_job_of_another_queue_is_not_there(narrow: Client, act: str) -> None:
    """As if it were nowhere."""
    method = "POST" if act in ("/cancel", "/replay") else "GET"
    answer = await narrow.call(method, f"/v1/jobs/theirs{act}", None)

    assert (answer.status, answer.json["code"]) == (404, "JOB_NOT_FOUND")
    assert (await narrow.delete("/v1/jobs/theirs")).status == 404
    for changed, body in (("reprioritise", {"priority": 1}), ("reschedule", {"delay": 1})):
        assert (await narrow.post(f"/v1/jobs/theirs/{changed}", body)).status == 404


async def test_lists_leave_out_the_other_queues(narrow: Client) -> None:
    """Jobs, dead letters, queues, settings and events."""
    for path in ("/v1/jobs", "/v1/dead", "/v1/queues", "/v1/scopes", "/v1/events"):
        answer = await narrow.get(path)
        assert answer.status == 200
        for word in (b"theirs", b"bank", b"SECRET"):
            assert word not in answer.body, path


async def test_a_group_is_canceled_only_in_the_tokens_queues(narrow: Client) -> None:
    """A group goes across queues, the token does not."""
    assert (await narrow.post("/v1/scopes/group/g/cancel")).json == {"done": 1}

    everybody = narrow.with_headers(authorization=f"Bearer {mint()}")
    states = [(await everybody.get(f"/v1/jobs/{id}")).json["state"] for id in ("mine", "theirs")]
    assert states == ["canceled", "enqueued"]


async def test_a_job_of_another_type_is_not_handed_out(narrow: Client) -> None:
    """It goes back without a lost attempt, and rests a little."""
    everybody = narrow.with_headers(authorization=f"Bearer {mint()}")
    await everybody.post("/v1/jobs", {"type": "pay", "queue": "mail", "id": "pay", "priority": 9})

    for wait in (0, 0.01):
        claim = {"limit": 10, "wait": wait}
        leases = (await narrow.post("/v1/claim", claim)).json["leases"]
        assert "pay" not in {lease["job"]["id"] for lease in leases}
    found = (await everybody.get("/v1/jobs/pay")).json
    assert (found["state"], found["attempt"]) == ("scheduled", 0)


@pytest.mark.parametrize(
    ("queues", "asked", "found"),
    [
        (None, None, None),
        (None, ("a",), ("a",)),
        (("a", "b"), None, ("a", "b")),
        (("a", "b"), ("b",), ("b",)),
        (("a", "b"), (), ("a", "b")),
    ],
)
def test_the_queues_asked_for_stay_within_those_granted(
    queues: Any, asked: Any, found: Any
) -> None:
    """And not naming any asks for all that are granted."""
    caller = Caller(name="x", tenant="acme", rights=frozenset(), queues=queues)

    assert caller.queues_of(asked) == found
    if queues is not None:
        with pytest.raises(Forbidden):
            caller.queues_of(("a", "other"))


async def test_a_stream_ends_with_its_token() -> None:
    """Whoever follows events for days must come with a new token now and then."""

    class Ending:
        async def caller(self, request: object) -> Caller:
            return Caller(name="x", tenant="a", rights=frozenset(Right), until=self.until)

        until: float | None = None

    auth = Ending()
    async with serving(auth) as found:
        await found.post("/v1/jobs", {"type": "mail"})
        auth.until = time.time() - 1
        ended = await found.get("/v1/events/stream?after=0")
        auth.until = time.time() + 600
        async with found.open("GET", "/v1/events/stream?after=0") as talk:
            await talk.start()
            first = await anext(talk.parts())

    assert (ended.status, ended.body) == (200, b"")
    assert b"enqueued" in first


def test_a_caller_is_frozen() -> None:
    """It is remembered and shared by requests."""
    with pytest.raises(AttributeError):
        Caller(name="x", tenant="a", rights=frozenset()).tenant = "b"  # type: ignore[misc]


# -- what refusals are called ----------------------------------------------------------------------


def _codes(kind: type[HoldfastError] = HoldfastError) -> set[str]:
    found = {kind.code} if kind.__module__.startswith("holdfast.service") else set()
    return found.union(*(_codes(child) for child in kind.__subclasses__()))


def test_the_errors_page_names_every_code_of_the_service() -> None:
    """Beside those of the library, which the tests of the documentation look at."""
    for module in pkgutil.walk_packages(holdfast.service.__path__, "holdfast.service."):
        importlib.import_module(module.name)
    page = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
    rows = set(re.findall(r"^\| `([A-Z_]+)` \|", page.read_text("utf-8"), re.M))

    assert _codes() | {fault(None).code} <= rows

"""The Firecrawl wire: who may do what, and what becomes of bad input."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from tests.service.firecrawl import Badges, Bench, badge, benched

from holdfast.service.firecrawl.endpoint import Line
from holdfast.service.firecrawl.routes import LINES
from holdfast.service.rights import Caller, Right, Unauthenticated
from holdfast.store import Find, Selection

JOB = {"id": "j", "data": 1, "priority": 0, "listenable": False}
PUSH = {"teamId": "acme", "job": JOB, "timeout": None}
BODIES: dict[str, Any] = {
    "/queue/push": PUSH,
    "/queue/pop/{team}": {"workerId": "w", "blockedCrawlIds": []},
    "/queue/complete": {
        "queueKey": base64.b64encode(b'["acme","id","token","j"]').decode()
    },
    "/queue/release": {"jobId": "j"},
    "/active/push": {"teamId": "acme", "jobId": "j", "timeout": 1},
    "/active/remove": {"teamId": "acme", "jobId": "j"},
    "/active/crawl/push": {"crawlId": "c", "jobId": "j", "timeout": 1},
    "/active/crawl/remove": {"crawlId": "c", "jobId": "j"},
}  # fmt: skip
WITH_BODY = [line for line in LINES if line.body is not None]
NAMES_A_TEAM = [
    line for line in LINES if "{team}" in line.path or "teamId" in BODIES.get(line.path, {})
]


def _path(line: Line, team: str = "acme") -> str:
    return line.path.replace("{team}", team).replace("{crawl}", "c")


def _named(line: Line) -> str:
    return f"{line.method} {line.path}"


@pytest.fixture
async def bench(kind: str) -> AsyncIterator[Bench]:
    async with benched(kind=kind) as found:
        yield found


async def _stored(bench: Bench) -> int:
    return len((await bench.store.find(Find(select=Selection(tenant=None)))).jobs)


# -- the table -------------------------------------------------------------------------------------


def test_the_table_has_every_route_of_the_wire() -> None:
    """25 of them, each with a name of its own, and only one that anybody may call."""
    assert len({(line.method, line.path) for line in LINES}) == 25
    assert len({line.name for line in LINES}) == 25
    assert [line.path for line in LINES if line.right is None] == ["/health"]
    assert {line.path for line in WITH_BODY} == set(BODIES)


@pytest.mark.parametrize("line", LINES, ids=_named)
async def test_every_route_answers_what_is_right(bench: Bench, line: Line) -> None:
    """With JSON, which the client always reads."""
    answer = await bench.call(line.method, _path(line), BODIES.get(line.path))

    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json is None or isinstance(answer.json, dict)


@pytest.mark.parametrize("line", LINES, ids=_named)
async def test_every_route_asks_for_its_right(line: Line, kind: str) -> None:
    """A token with all rights but this one is refused; one with this one alone is not."""
    right = line.right or Right.READ
    others = [one for one in Right if one is not right]
    auth = Badges(badge("wrong", None, *others), badge("right", None, right))
    async with benched(auth, kind=kind) as bench:
        path, body = _path(line), BODIES.get(line.path)
        wrong = await bench.call(line.method, path, body, badge="wrong")
        good = await bench.call(line.method, path, body, badge="right")

    assert wrong.status == (200 if line.right is None else 403)
    assert good.status == 200


@pytest.mark.parametrize("line", LINES, ids=_named)
async def test_every_route_but_health_asks_who_calls(line: Line, kind: str) -> None:
    """Nobody is told anything but that."""

    class Nobody:
        async def caller(self, request: Request) -> Caller:
            raise Unauthenticated(why="no token")

    async with benched(Nobody(), kind=kind) as bench:
        answer = await bench.call(line.method, _path(line), BODIES.get(line.path))

    assert answer.status == (200 if line.right is None else 401)


@pytest.mark.parametrize("line", NAMES_A_TEAM, ids=_named)
async def test_a_token_for_one_team_acts_for_no_other(line: Line, kind: str) -> None:
    """In the path as in the body; its own it may."""
    async with benched(Badges(badge("acme", "acme"), badge("evil", "evil")), kind=kind) as bench:
        path, body = _path(line), BODIES.get(line.path)
        own = await bench.call(line.method, path, body, badge="acme")
        foreign = await bench.call(line.method, path, body, badge="evil")

        assert (own.status, foreign.status) == (200, 403)
        assert await _stored(bench) == (1 if line.path == "/queue/push" else 0)


async def test_what_names_no_team_stays_within_the_token_s(kind: str) -> None:
    """Counts, claims, markers and samples of crawls; a service token sees all."""
    auth = Badges(badge("acme", "acme"), badge("evil", "evil"), badge("all", None))
    async with benched(auth, kind=kind) as bench:

        async def call(who: str, method: str, path: str, body: Any = None) -> Any:
            return (await bench.call(method, path, body, badge=who)).json

        for who in ("acme", "evil"):
            push = {**PUSH, "teamId": who, "crawlId": "c"}
            assert await call(who, "POST", "/queue/push", push) == {"success": True}
            mark = {"crawlId": "c", "jobId": f"of {who}", "timeout": 1000}
            await call(who, "POST", "/active/crawl/push", mark)
        pop = BODIES["/queue/pop/{team}"]
        key = (await call("acme", "POST", "/queue/pop/acme", pop))["queueKey"]

        counts = [
            (await call(who, "GET", "/queue/count/crawl/c"))["count"]
            for who in ("acme", "evil", "all")
        ]
        marked = [
            (await call(who, "GET", "/active/crawl/jobs/c"))["jobIds"]
            for who in ("acme", "evil", "all")
        ]
        teams = [
            (await call(who, "GET", "/sample/teams"))["ids"] for who in ("acme", "evil", "all")
        ]
        taken = await call("evil", "POST", "/queue/complete", {"queueKey": key})
        await call("evil", "POST", "/queue/release", {"jobId": "j"})
        still = await call("acme", "POST", "/queue/pop/acme", pop)
        await call("all", "POST", "/queue/release", {"jobId": "j"})
        again = await call("acme", "POST", "/queue/pop/acme", pop)

    assert counts == [1, 1, 2]
    assert marked == [["of acme"], ["of evil"], ["of acme", "of evil"]]
    assert teams == [["acme"], ["evil"], ["acme", "evil"]]
    assert taken == {"success": False}
    assert (still, again["job"]["id"]) == (None, "j")


async def test_a_token_for_other_queues_does_not_reach_the_wire(kind: str) -> None:
    """The wire's queue is named `firecrawl`, and so is its type."""
    auth = Badges(badge("q", None, queues=("mail",)), badge("t", None, types=("mail",)))
    async with benched(auth, kind=kind) as bench:
        for line in LINES:
            answer = await bench.call(line.method, _path(line), BODIES.get(line.path), badge="q")
            assert answer.status == (200 if line.right is None else 403), line.path
        pushed = await bench.call("POST", "/queue/push", PUSH, badge="t")

    assert pushed.status == 403


# -- bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", WITH_BODY, ids=_named)
async def test_a_body_that_is_not_json_is_refused(bench: Bench, line: Line) -> None:
    """400 malformed, 415 not announced, 422 of another shape, 413 too long: never 500."""
    path = _path(line)
    for body in (
        b"",
        b"{",
        b"nul",
        b'{"a":NaN}',
        b'\xff"',
        b'"\\ud8"',
        b'{"a":' + b"[" * 100_000,
    ):
        answer = await bench.call(line.method, path, body)
        assert answer.status == 400, (body[:10], answer)
    for body in (b"null", b"[]", b"1", b'"x"'):
        assert (await bench.call(line.method, path, body)).status == 422
    for media in ("text/plain", "", "multipart/form-data"):
        answer = await bench.call(line.method, path, b"{}", content_type=media)
        assert answer.status == 415
    long = b'"' + b"x" * (2 * 1024 * 1024) + b'"'
    assert (await bench.call(line.method, path, long)).status == 413
    assert await _stored(bench) == 0


@pytest.mark.parametrize("line", WITH_BODY, ids=_named)
async def test_a_wrong_or_missing_field_is_named(bench: Bench, line: Line) -> None:
    """Each field in turn is left out, or something else."""
    whole = BODIES[line.path]
    fields = set(whole) - {"workerId", "blockedCrawlIds"}
    if line.path == "/queue/push":
        fields = {"teamId", "job"}
    for field in fields:
        without = {name: value for name, value in whole.items() if name != field}
        for body in (without, {**whole, field: True}, {**whole, field: [1]}, {**whole, field: 1.5}):
            answer = await bench.call(line.method, _path(line), body)
            assert (answer.status, answer.json["field"]) == (422, field), body
    assert await _stored(bench) == 0


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("id", [None, 1, "", "x" * 300]),
        ("priority", [None, "1", 1.5, 2**31, -(2**31) - 1, 10**30, True]),
        ("listenable", [None, 0, "true"]),
        ("listenChannelId", [1, [], False]),
        ("data", [msgspec.UNSET]),
    ],
)
async def test_a_wrong_field_of_a_pushed_job_is_named(
    bench: Bench, field: str, values: list[Any]
) -> None:
    """Nothing is stored."""
    for value in values:
        job = {
            name: each for name, each in {**JOB, field: value}.items() if each is not msgspec.UNSET
        }
        answer = await bench.call("POST", "/queue/push", {**PUSH, "job": job})
        assert (answer.status, answer.json["field"]) == (422, f"job.{field}")
    assert await _stored(bench) == 0


@pytest.mark.parametrize(
    ("field", "value"),
    [("teamId", ""), ("teamId", "x" * 129), ("crawlId", ""), ("crawlId", "é" * 257),
     ("timeout", "5"), ("timeout", True)],
)  # fmt: skip
async def test_a_wrong_field_of_a_push_is_named(bench: Bench, field: str, value: object) -> None:
    """Names have a length, time-outs are numbers."""
    answer = await bench.call("POST", "/queue/push", {**PUSH, field: value})

    assert (answer.status, answer.json["field"]) == (422, field)
    assert await _stored(bench) == 0


@pytest.mark.parametrize("field", ["teamId", "crawlId", "job.id", "job.listenChannelId"])
async def test_half_of_a_surrogate_pair_is_no_part_of_an_id(bench: Bench, field: str) -> None:
    """Only data may have it."""
    job = b'{"id":"%(job.id)b","data":"\\ud800","priority":0,"listenable":true,'
    job += b'"listenChannelId":"%(job.listenChannelId)b"}'
    body = b'{"teamId":"%(teamId)b","crawlId":"%(crawlId)b","job":' + job + b"}"
    names = ("teamId", "crawlId", "job.id", "job.listenChannelId")
    fill = {name.encode(): rb"\udfff" if name == field else b"x" for name in names}

    answer = await bench.call("POST", "/queue/push", body % fill)

    assert (answer.status, answer.json["field"]) == (422, field)


@pytest.mark.parametrize(
    "key",
    ["", "no base64", "AAA", "////", base64.b64encode(b'["a","b","c"]').decode(),
     base64.b64encode(b"[1,2,3,4]").decode(), base64.b64encode(b"{}").decode(),
     base64.b64encode(b'["a\\u0000","b","c","d"]').decode(), "x" * 10_000, "é",
     base64.b64encode(b'["","","",""]').decode()],
)  # fmt: skip
async def test_a_key_that_no_pop_gave_is_refused(bench: Bench, key: str) -> None:
    """400: the original says 500."""
    answer = await bench.call("POST", "/queue/complete", {"queueKey": key})

    assert (answer.status, answer.json["code"]) == (400, "MALFORMED_KEY")


async def test_a_forged_key_completes_nothing(bench: Bench) -> None:
    """The token is the right."""
    await bench.push("j", team="acme")
    key = (await bench.pop("acme"))["queueKey"]
    parts = msgspec.json.decode(base64.b64decode(key))
    for place, value in ((0, "other"), (1, "x"), (2, "x.1"), (2, "")):
        forged = [*parts[:place], value, *parts[place + 1 :]]
        text = base64.b64encode(msgspec.json.encode(forged)).decode()
        answer = await bench.call("POST", "/queue/complete", {"queueKey": text})
        assert answer.json.get("success", False) is False

    assert await bench.complete(key)


@pytest.mark.parametrize("value", ["x", "-1", "1.5", "", "1e3", "٣", "9" * 30])
@pytest.mark.parametrize("path", ["/queue/jobs/team/a", "/sample/teams", "/sample/crawls"])
async def test_a_limit_that_is_no_number_is_refused(bench: Bench, path: str, value: str) -> None:
    """400, as the original does."""
    answer = await bench.call("GET", f"{path}?limit={value}")

    assert (answer.status, answer.json["code"]) == (400, "MALFORMED_QUERY")


async def test_ways_that_do_not_exist_are_told(bench: Bench) -> None:
    """404 for paths, 405 for methods, 400 for a path that is no text."""
    asked = [
        ("GET", "/queue"), ("POST", "/queue/pop/"), ("POST", "/queue/pop/a/b"),
        ("GET", "/queue/push"), ("POST", "/active/remove"), ("POST", "/queue/pop/%ff"),
        ("GET", "/queue/count/team/%00"), ("GET", f"/queue/count/team/{'x' * 200}"),
    ]  # fmt: skip
    found = [(await bench.call(method, path, b"{}")).status for method, path in asked]

    assert found == [404, 404, 404, 405, 405, 400, 400, 422]


async def test_a_pop_that_says_nothing_removes_nothing(bench: Bench) -> None:
    """The first generation of clients names the blocked crawls at least."""
    await bench.push("j", team="acme")

    answer = await bench.call("POST", "/queue/pop/acme", {})

    assert (answer.status, answer.json["field"]) == (422, "workerId")
    assert await bench.count("/queue/count/team/acme") == 1


async def test_blocked_crawls_are_bounded(bench: Bench) -> None:
    """What no crawl can be named is left out; too many different ones are refused."""
    await bench.push("j", team="acme")
    odd = {"workerId": "w" * 1000, "blockedCrawlIds": ["", "x" * 9999, *["same"] * 5000]}
    many = {"workerId": "w", "blockedCrawlIds": [str(number) for number in range(1001)]}

    refused = await bench.call("POST", "/queue/pop/acme", many)
    found = await bench.ok("POST", "/queue/pop/acme", odd)

    assert (refused.status, refused.json["field"]) == (422, "blockedCrawlIds")
    assert found["job"]["id"] == "j"

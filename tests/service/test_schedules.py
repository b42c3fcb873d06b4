"""Schedules over HTTP and through a remote store: what tokens may do and cannot forge."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.service.asgi import Answer, Client
from tests.service.minted import bearer

from holdfast.core.bounds import EDITS_MAX
from holdfast.core.cron import Timing
from holdfast.core.schedule import (
    OVER_ALL,
    QUEUE,
    TYPE,
    Definition,
    Edit,
    decode,
    encode,
    name_of,
    under,
)
from holdfast.core.spec import JobSpec
from holdfast.core.tick import TICK_RULES, tick_job
from holdfast.service.auth.claims import ALL_TENANTS
from holdfast.store import Claim, Put, Setting
from holdfast.stores.remote import wire

HOURLY = {"cron": "0 * * * *", "type": "report", "queue": "mail", "payload": {"n": 1}}
PATH = "/v1/schedules/nightly"
JOB = JobSpec(type="report", codec="json", version=1, body=b"{}", queue="mail")
DEFINITION = Definition(
    revision=1_767_225_600_000_000, timing=Timing(every_us=300_000_000), job=JOB
)
START = 1_767_225_600_000_000
EVERY_TENANT: dict[str, Any] = {ALL_TENANTS: True}


@pytest.fixture
def client(bare: Client) -> Client:
    """Acts for acme, with every right."""
    return bare.with_headers(authorization=bearer())


async def packed(client: Client, verb: str, body: Any) -> Answer:
    """A call of the remote store."""
    headers = {"content-type": wire.MEDIA}
    return await client.call("POST", f"/v1/store/{verb}", wire.encode(body), **headers)


async def put(client: Client, tenant: str, value: Definition | None, version: int = 0) -> Answer:
    stored = None if value is None else encode(value)
    return await packed(client, "put", wire.Puts([Put(name_of(tenant, "x"), stored, version)]))


# -- what the routes do ----------------------------------------------------------------------------


async def test_a_schedule_is_made_changed_and_deleted(client: Client) -> None:
    """201, then 200; what is not named stays."""
    made = await client.put(PATH, {**HOURLY, "zone": "Europe/Berlin", "overlap": "queue"})
    assert made.status == 201, made
    assert len(made.json["next"]) == 5
    assert made.json["payload"] == {"n": 1}

    changed = await client.put(PATH, {"cron": "30 * * * *", "expect": made.json["version"]})
    assert changed.status == 200
    shown = (await client.get(PATH)).json
    assert (shown["cron"], shown["zone"], shown["type"]) == (
        "30 * * * *",
        "Europe/Berlin",
        "report",
    )
    assert [edit["author"] for edit in shown["edits"]] == ["acme", "acme"]
    assert (await client.put(PATH, {"every": 60, "expect": 1})).status == 409

    [listed] = (await client.get("/v1/schedules")).json["schedules"]
    assert listed["name"] == "nightly"
    assert (await client.delete(PATH)).json == {"deleted": True}
    gone = await client.get(PATH)
    assert (gone.status, gone.json["code"]) == (404, "SCHEDULE_NOT_FOUND")


async def test_a_schedule_is_paused_resumed_and_run(client: Client) -> None:
    """The pause says who and why."""
    await client.put(PATH, HOURLY)

    paused = (await client.post(f"{PATH}/pause", {"reason": "vendor down"})).json
    assert (paused["paused"]["reason"], paused["paused"]["author"]) == ("vendor down", "acme")
    assert "paused" not in (await client.post(f"{PATH}/resume")).json
    job = (await client.post(f"{PATH}/run-now")).json
    assert (await client.get(f"/v1/jobs/{job['id']}")).json["type"] == "report"


async def test_a_backfill_counts_before_it_makes(client: Client) -> None:
    """Each tick has one job at most."""
    await client.put(PATH, HOURLY)
    day = {"first": "2026-01-01T00:00:00Z", "last": "2026-01-02T00:00:00Z"}

    shown = (await client.post(f"{PATH}/backfill", day)).json
    assert (shown["created"], shown["applied"], len(shown["ticks"])) == (24, False, 24)
    made = (await client.post(f"{PATH}/backfill", {**day, "apply": True})).json
    again = (await client.post(f"{PATH}/backfill", {**day, "apply": True})).json
    assert (made["created"], again["created"], again["existing"]) == (24, 0, 24)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"cron": "0 * * * *"}, "type"),
        ({**HOURLY, "cron": "* * * * * *"}, "cron"),
        ({**HOURLY, "cron": "0 0 31 2 *"}, "cron"),
        ({**HOURLY, "zone": "Mars/Base"}, "zone"),
        ({**HOURLY, "every": 60}, "every"),
        ({"type": "t", "every": 60, "phase": 60}, "phase"),
        ({"type": "t", "every": 60, "jitter": 60}, "jitter"),
        ({**HOURLY, "overlap": "maybe"}, "overlap"),
        ({**HOURLY, "queue": QUEUE}, "queue"),
        ({**HOURLY, "type": TYPE}, "type"),
        ({**HOURLY, "tags": ["tick:2026-01-01T00:00:00Z"]}, "tags"),
        ({**HOURLY, "payload": "x" * 40_000}, "payload"),
        ({**HOURLY, "overlap": "queue", "group": "g"}, "overlap"),
    ],
    ids=str,
)
async def test_a_bad_schedule_names_its_field_and_leaves_nothing(
    client: Client, body: Any, field: str
) -> None:
    """Neither a definition nor a tick."""
    answer = await client.put(PATH, body)

    assert (answer.status, answer.json["field"]) == (422, field), answer
    assert (await client.get("/v1/schedules")).json == {"schedules": []}
    assert (await client.get("/v1/jobs")).json["jobs"] == []


@pytest.mark.parametrize("name", ["a%20b", "@daily", "x" * 56])
async def test_a_bad_name_is_refused(client: Client, name: str) -> None:
    """What could be a cron text is no name."""
    assert (await client.put(f"/v1/schedules/{name}", HOURLY)).status == 422


# -- tenants, queues and types ---------------------------------------------------------------------


async def test_each_tenant_sees_its_own_schedules_only(bare: Client, client: Client) -> None:
    """P7: one of another tenant is not found, whatever is done to it."""
    other = bare.with_headers(authorization=bearer(tid="globex"))
    await client.put(PATH, HOURLY)

    assert (await other.get("/v1/schedules")).json == {"schedules": []}
    for method, path, body in (
        ("GET", PATH, None),
        ("DELETE", PATH, None),
        ("POST", f"{PATH}/pause", {"reason": "x"}),
        ("POST", f"{PATH}/run-now", None),
    ):
        assert (await other.call(method, path, body)).status == 404
    assert (await packed(other, "settings", wire.Under(under("acme")))).status == 403
    assert (await put(other, "acme", DEFINITION)).status == 403
    assert (await client.get(PATH)).status == 200


async def test_a_narrow_token_has_the_schedules_of_its_queues_and_types(
    bare: Client, client: Client
) -> None:
    """The others are not there, and it makes none."""
    theirs = {**HOURLY, "type": "pay", "queue": "bank"}
    job = msgspec.structs.replace(JOB, type="pay", queue="bank")
    await client.put(PATH, theirs)
    for claims in ({"queues": ["mail"]}, {"types": ["report"]}):
        narrow = bare.with_headers(authorization=bearer(**claims))
        assert (await narrow.get("/v1/schedules")).json == {"schedules": []}
        assert (await narrow.get(PATH)).status == 404
        assert (await narrow.put(PATH, {"every": 60})).status == 404
        assert (await narrow.delete(PATH)).status == 404
        assert (await narrow.put(f"{PATH}2", theirs)).status == 403
        forged = msgspec.structs.replace(DEFINITION, job=job)
        assert (await put(narrow, "acme", forged)).status == 403
        listed = await packed(narrow, "settings", wire.Under(under("acme")))
        assert b"pay" not in listed.body
        assert (await narrow.put("/v1/schedules/own", HOURLY)).status == 201
        assert (await narrow.delete("/v1/schedules/own")).status == 200


async def test_a_narrow_worker_still_claims_its_own_queue(bare: Client, client: Client) -> None:
    """Workers ask for ticks too; a token that is not for them gets the rest."""
    await client.put(PATH, HOURLY)
    for number, claims in enumerate(({"queues": ["mail"]}, {"types": ["report"]})):
        await client.post("/v1/jobs", {"type": "report", "queue": "mail"})
        narrow = bare.with_headers(authorization=bearer(**claims))
        claim = Claim(
            worker="w",
            nonce=f"n-{number}",
            limit=9,
            lease_us=60_000_000,
            queues=("mail", QUEUE),
        )
        answer = await packed(narrow, "claim", claim)
        assert (answer.status, b"report" in answer.body) == (200, True)


# -- what cannot be forged -------------------------------------------------------------------------


async def test_nobody_enqueues_into_the_queue_of_ticks(client: Client) -> None:
    """Over HTTP not at all; through a remote store only a tick as the library makes it."""
    for body in ({"type": "t", "queue": QUEUE}, {"type": TYPE}, {"type": TYPE, "priority": 1}):
        assert (await client.post("/v1/jobs", body)).status == 422
        assert (await client.post("/v1/jobs/batch", {"jobs": [body]})).status == 422
    good = tick_job("acme", "x", DEFINITION, START)
    assert (await packed(client, "enqueue", wire.NewJobs([good]))).status == 200
    for bad in (
        msgspec.structs.replace(good, id="mine"),
        msgspec.structs.replace(good, queue="mail"),
        msgspec.structs.replace(good, tags=()),
        msgspec.structs.replace(good, rules=msgspec.structs.replace(TICK_RULES, keep_us=9)),
        msgspec.structs.replace(good, envelope=msgspec.structs.replace(good.envelope, body=b"{}")),
        msgspec.structs.replace(good, envelope=msgspec.structs.replace(good.envelope, type="t")),
    ):
        assert (await packed(client, "enqueue", wire.NewJobs([bad]))).status == 422
    assert (
        await packed(client, "enqueue", wire.NewJobs([msgspec.structs.replace(good, tenant="b")]))
    ).status == 403


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "holdfast.flow", "queue": "holdfast.flows"},
        {"queue": "holdfast.flows"},
        {"type": "holdfast.guard"},
        {"codec": "refs"},
    ],
    ids=str,
)
async def test_no_schedule_makes_the_jobs_of_the_library(
    client: Client, fields: dict[str, Any]
) -> None:
    """A worker makes what a schedule says, so a forged head of a flow would come from within."""
    job = msgspec.structs.replace(JOB, **fields)

    answer = await put(client, "acme", msgspec.structs.replace(DEFINITION, job=job))

    assert answer.status == 422
    assert (await client.get("/v1/schedules")).json == {"schedules": []}


async def test_workers_in_other_languages_get_no_ticks(client: Client) -> None:
    """They do not know what a tick does; it goes back without a lost attempt."""
    await packed(client, "enqueue", wire.NewJobs([tick_job("acme", "x", DEFINITION, START)]))

    assert (await client.post("/v1/claim", {"limit": 10})).json["leases"] == []
    [job] = (await client.get(f"/v1/jobs?queue={QUEUE}")).json["jobs"]
    assert job["attempt"] == 0


async def test_only_the_platform_schedules_for_many_tenants(bare: Client, client: Client) -> None:
    """Neither by the routes nor by the settings of a remote store."""
    assert (await put(client, OVER_ALL, DEFINITION)).status == 403
    platform = bare.with_headers(authorization=bearer(scope="admin", **EVERY_TENANT))
    assert (await put(platform, OVER_ALL, DEFINITION)).status == 200
    listed = await platform.get("/v1/schedules", holdfast_tenant=OVER_ALL)
    assert [one["name"] for one in listed.json["schedules"]] == ["x"]
    mine = bare.with_headers(authorization=bearer(tid=OVER_ALL))
    assert (await mine.get("/v1/schedules")).status == 403
    assert (await put(mine, OVER_ALL, DEFINITION, 1)).status == 403


async def test_a_tenant_cannot_clear_the_history(client: Client) -> None:
    """A definition that is sent without changes adds one, by the name of the token."""
    await put(client, "acme", DEFINITION)
    await put(client, "acme", msgspec.structs.replace(DEFINITION, edits=()), 1)

    listed = await packed(client, "settings", wire.Under(under("acme")))
    [setting] = msgspec.msgpack.decode(listed.body, type=list[Setting])
    edits = decode(setting.name, setting.value).edits
    assert [edit.author for edit in edits] == ["acme (acme)", "acme (acme)"]


async def test_a_tenant_cannot_write_another_history(client: Client) -> None:
    """The list of changes is that of the service, and names the token."""
    await put(client, "acme", DEFINITION)
    forged = tuple(Edit(5, "the president", "set") for _ in range(EDITS_MAX))
    value = msgspec.structs.replace(DEFINITION, edits=forged)
    answer = await put(client, "acme", value, 1)

    listed = await packed(client, "settings", wire.Under(under("acme")))
    [setting] = msgspec.msgpack.decode(listed.body, type=list[Setting])
    edits = decode(setting.name, setting.value).edits
    assert answer.status == 200
    assert len(edits) == 2
    assert edits[0].author == "the president (acme)"
    assert edits[0].at > 5


async def test_pickled_payloads_are_for_admins_of_every_tenant(
    bare: Client, client: Client
) -> None:
    """As those of jobs."""
    value = msgspec.structs.replace(DEFINITION, job=msgspec.structs.replace(JOB, codec="pickle"))

    assert (await put(client, "acme", value)).status == 403
    admin = bare.with_headers(authorization=bearer(scope="admin", **EVERY_TENANT))
    assert (await put(admin, "acme", value)).status == 200

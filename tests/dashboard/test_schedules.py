"""The page of schedules: what it shows to whom, and its buttons."""

from __future__ import annotations

import re
from typing import Any

from tests.dashboard.visitor import Visit
from tests.service.asgi import Client

SCHEDULE: dict[str, Any] = {
    "cron": "30 6 * * mon-fri",
    "zone": "Europe/Berlin",
    "type": "report",
    "queue": "mail",
}
ACT = "/ui/schedules/acme/nightly%2F1"


async def furnish(api: Client) -> None:
    """One schedule of acme and one of globex."""
    assert (await api.put("/v1/schedules/nightly%2F1", SCHEDULE)).status == 201
    other = api.with_headers(holdfast_tenant="globex")
    assert (await other.put("/v1/schedules/theirs", SCHEDULE)).status == 201


async def test_the_page_shows_schedules_with_their_next_ticks(visit: Visit, api: Client) -> None:
    """In the zone of each, five of them."""
    empty = await visit("reader").page("/ui/schedules")
    assert "There are no schedules" in empty
    await furnish(api)

    text = await visit("reader").page("/ui/schedules")

    assert "nightly/1" in text
    assert "30 6 * * mon-fri in Europe/Berlin" in text
    assert text.count("06:30:00 CE") == 10
    assert "Run now" not in text


async def test_an_operator_pauses_resumes_and_runs(visit: Visit, api: Client) -> None:
    """With a reason, which the page shows."""
    await furnish(api)
    operator = visit("operator")
    assert "Pause</button>" in await operator.page("/ui/schedules")

    assert (await operator.send(f"{ACT}/pause")).status == 422
    assert (await operator.send(f"{ACT}/pause", reason="vendor down")).status == 303
    paused = await operator.page("/ui/schedules?did=schedule_paused")
    assert "vendor down" in paused
    assert "The schedule is paused" in paused
    assert (await operator.send(f"{ACT}/resume")).status == 303
    assert "chip paused" not in await operator.page("/ui/schedules")
    made = await operator.send(f"{ACT}/run")
    assert "Schedule" not in made.headers["location"]
    assert "report" in await operator.page(made.headers["location"])
    assert (await operator.send("/ui/schedules/acme/none/run")).status == 404


async def test_the_page_shows_who_did_what_and_when(visit: Visit, api: Client) -> None:
    """P14: pauses with their reason, runs by hand and backfills, besides edits."""
    await furnish(api)
    operator = visit("operator")
    await operator.send(f"{ACT}/pause", reason="vendor down <b>")
    await operator.send(f"{ACT}/resume")
    await operator.send(f"{ACT}/run")
    past = {"first": "2025-12-29T00:00:00Z", "last": "2025-12-31T00:00:00Z", "apply": True}
    path = "/v1/schedules/nightly%2F1/backfill"
    assert (await api.post(path, past)).json["applied"]

    text = await visit("reader").page("/ui/schedules")

    changes = re.findall(r"<li><time [^>]+>[^<]+ UTC</time> (.*?)</li>", text)
    assert [one.split(" by ")[0] for one in changes[:4]] == [
        "backfilled 2 ticks of 2025-12-29T00:00:00Z to 2025-12-31T00:00:00Z",
        "ran now",
        "resumed",
        "paused",
    ]
    assert changes[3].endswith(": vendor down &lt;b&gt;")
    assert changes[3].startswith("paused by olga")


async def test_nobody_sees_or_stops_another_tenants_schedules(visit: Visit, api: Client) -> None:
    """Nor those of queues that its token is not for."""
    await furnish(api)
    anna, mia = visit("acme"), visit("mailer")

    assert "theirs" not in await anna.page("/ui/schedules")
    assert (await anna.get("/ui/schedules?tenant=globex")).status == 403
    assert (await anna.send("/ui/schedules/globex/theirs/pause", reason="x")).status == 403
    await api.put("/v1/schedules/secret", {**SCHEDULE, "queue": "bank"})
    assert "secret" not in await mia.page("/ui/schedules")
    assert (await mia.send("/ui/schedules/acme/secret/run")).status in (403, 404)

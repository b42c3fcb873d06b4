"""`holdfast schedules`: what each command prints, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast import App, By, Context
from holdfast.cli.main import cli

DAY = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z")


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with one schedule of acme, and one of globex."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    app = App(url)

    @app.job(queue="sync")
    async def sync(ctx: Context, shop: int) -> None: ...

    async def furnish() -> None:
        async with app:
            acme, globex = app.tenant("acme"), app.tenant("globex")
            by = By("ann", "new shop")
            await acme.schedule("sync:42").set(sync(shop=42), every=3600, phase=17, by=by)
            await globex.schedule("daily").set(
                sync(shop=7), cron="30 2 * * *", zone="Europe/Berlin", within=3600
            )

    asyncio.run(furnish())
    return url


def run(url: str, *arguments: str, code: int = 0) -> Result:
    found = CliRunner().invoke(cli, ["schedules", *arguments, "--store", url])
    assert found.exit_code == code, found.output
    return found


def printed(url: str, *arguments: str) -> Any:
    return json.loads(run(url, *arguments, "--json").stdout)


def test_list_shows_all_or_those_of_a_tenant(url: str) -> None:
    """With when and the next tick; by pages."""
    text = run(url, "list").stdout
    assert "every 3600 s, phase 17 s" in text
    assert "30 2 * * * in Europe/Berlin" in text

    assert [one["name"] for one in printed(url, "list")["schedules"]] == ["sync:42", "daily"]
    [one] = printed(url, "list", "--tenant", "globex")["schedules"]
    assert (one["name"], one["zone"], one["within"]) == ("daily", "Europe/Berlin", 3600.0)
    first = printed(url, "list", "--limit", "1")
    rest = printed(url, "list", "--limit", "1", "--after", first["cursor"])
    assert [rest["schedules"][0]["name"], first["schedules"][0]["name"]] == ["daily", "sync:42"]
    assert "no schedules" in run(url, "list", "--tenant", "nobody").stdout


def test_show_has_the_next_five_ticks_and_the_changes(url: str) -> None:
    """For people and as JSON."""
    one = printed(url, "show", "sync:42", "--tenant", "acme")
    assert len(one["next"]) == 5
    assert (one["payload"], one["every"], one["phase"]) == ({"shop": 42}, 3600.0, 17.0)
    assert one["edits"][0]["reason"] == "new shop"

    text = run(url, "show", "daily", "--tenant", "globex").stdout
    assert text.count("02:30:00+0") + text.count("03:00:00+02") == 5
    assert "set by unnamed" in text


def test_pause_resume_and_run_now(url: str) -> None:
    """The pause says who and why; a run now makes one job."""
    acme = ("sync:42", "--tenant", "acme")
    assert (
        "paused schedule 'sync:42'"
        in run(url, "pause", "sync:42", "vendor down", "--tenant", "acme", "--author", "ops").stdout
    )
    assert "paused by ops: vendor down" in run(url, "list").stdout
    assert printed(url, "resume", *acme)["paused"] is None
    id = printed(url, "run-now", *acme)["id"]
    jobs = CliRunner().invoke(cli, ["job", "show", id, "--store", url, "--json"])
    assert json.loads(jobs.stdout)["queue"] == "sync"


def test_backfill_shows_first_and_makes_when_it_is_confirmed(url: str) -> None:
    """Nothing without --yes where nobody can answer."""
    where = ("sync:42", *DAY, "--tenant", "acme")
    refused = run(url, "backfill", *where, code=2)
    assert "24 ticks from" in refused.stdout
    assert "24 jobs would be made: confirm with --yes" in refused.output
    assert printed(url, "backfill", *where, "--dry-run")["applied"] is False
    assert "24 jobs made" in run(url, "backfill", *where, "--yes").stdout
    assert printed(url, "backfill", *where, "--yes")["existing"] == 24
    assert "nothing to make" in run(url, "backfill", *where).stdout


def test_delete_asks_first(url: str) -> None:
    """And then it is gone: exit code 3."""
    where = ("sync:42", "--tenant", "acme")
    assert "confirm with --yes" in run(url, "delete", *where, code=2).output
    assert "deleted" in run(url, "delete", *where, "--yes").stdout
    gone = run(url, "show", "sync:24", "--tenant", "acme", code=3)
    assert "SCHEDULE_NOT_FOUND" in gone.output


def test_without_a_tenant_it_is_that_of_the_app(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And an error without an app."""
    assert "Missing option '--tenant'" in run(url, "show", "sync:42", code=2).output
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acme_app.py").write_text(
        f"from holdfast import App\napp = App({url!r}, tenant='acme')\n"
    )
    assert printed(url, "show", "sync:42", "--app", "acme_app:app")["tenant"] == "acme"

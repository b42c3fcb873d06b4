"""`holdfast sources`: what each command prints, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast import App, Context
from holdfast.cli.main import cli
from holdfast.sources import Item, Page, SourceChange


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A store with a source of acme that has two objects."""
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    app = App(url, tenant="acme")

    @app.source("parts", every=300, reconcile=3600)
    async def parts(ctx: Context, cursor: int) -> Page:
        return Page([])

    @parts.changed(queue="shop")
    async def apply(ctx: Context, change: SourceChange) -> None: ...

    async def furnish() -> None:
        async with app:
            await app.default.source("parts").push([Item(1, 7, {"name": "crane"}), Item(2)])

    asyncio.run(furnish())
    return url


def run(url: str, *arguments: str, code: int = 0) -> Result:
    given = ["sources", *arguments, "--store", url, "--tenant", "acme"]
    found = CliRunner().invoke(cli, given)
    assert found.exit_code == code, found.output
    return found


def printed(url: str, *arguments: str) -> Any:
    return json.loads(run(url, *arguments, "--json").stdout)


def test_sources_are_listed_and_shown(url: str) -> None:
    """With what a person needs to see that one is stuck."""
    assert "parts" in run(url, "list").stdout
    [one] = printed(url, "list")["sources"]
    assert (one["source"], one["objects"], one["change_type"]) == ("parts", 2, "apply")
    text = run(url, "show", "parts").stdout
    assert "state:" in text
    assert "created 2" in text
    assert printed(url, "show", "parts")["poll_type"] == "poll/parts"


def test_the_shadow_is_listed_by_pages(url: str) -> None:
    """With the bodies in JSON."""
    first = printed(url, "objects", "parts", "--limit", "1")
    assert first["objects"][0]["body"] == {"name": "crane"}
    assert first["objects"][0]["version"] == 7
    rest = printed(url, "objects", "parts", "--after", first["cursor"])
    assert [one["id"] for one in rest["objects"]] == ["2"]
    assert "more:" in run(url, "objects", "parts", "--limit", "1").stdout


def test_polls_and_listings_are_asked_for(url: str) -> None:
    """The second is the first, while it waits."""
    id = run(url, "poll", "parts").stdout.strip()
    assert printed(url, "reconcile", "parts", "--any-share") == {"id": id, "created": False}


def test_a_source_is_paused_resumed_reset_and_deleted(url: str) -> None:
    """Deleting asks, or needs --yes."""
    assert "paused source 'parts'" in run(url, "pause", "parts", "they migrate").stdout
    assert "they migrate" in run(url, "show", "parts").stdout
    assert printed(url, "resume", "parts")["paused"] is None
    assert "reset" in run(url, "reset", "parts").stdout
    assert "confirm with --yes" in run(url, "delete", "parts", code=2).output
    assert printed(url, "delete", "parts", "--yes") == {"source": "parts", "objects": 2}
    assert "no sources" in run(url, "list").stdout


def test_a_source_that_is_not_there_is_told_with_what_there_is(url: str) -> None:
    """Exit code 3, as for a job."""
    assert "Did you mean 'parts'?" in run(url, "show", "part", code=3).output

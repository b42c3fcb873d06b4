"""Templates and static files. Everything is escaped except the markup that is built here."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from holdfast.core.job import Reason, State
from holdfast.core.mapped import told
from holdfast.dashboard import words
from holdfast.dashboard.charts import Line, chart, strip
from holdfast.dashboard.feed import Snapshot
from holdfast.dashboard.samples import SPAN_S
from holdfast.dashboard.views import busiest

HERE = Path(__file__).parent
MEDIA = {"app.js": "text/javascript; charset=utf-8", "style.css": "text/css; charset=utf-8"}
SHOWN = (
    *("enqueued", "processing", "retrying", "scheduled", "waiting", "failed", "completed"),
    "canceled",
)
"""States in the order that matters to operators."""


@cache
def static(name: str) -> bytes:
    return (HERE / "static" / name).read_bytes()


@cache
def version() -> str:
    """Part of the addresses of files, so that browsers cache them until they change."""
    digest = hashlib.sha256(b"".join(static(name) for name in sorted(MEDIA)))
    return digest.hexdigest()[:12]


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(
        link=words.link, when=words.when, lasting=words.lasting, chip=words.chip, version=version(),
        states=[state.value for state in State], reasons=[reason.value for reason in Reason],
    )  # fmt: skip
    made.filters.update(
        number=words.number, many=words.many, span=words.span, lasted=words.lasted,
        short=words.short, full=words.full, told=told,
    )  # fmt: skip
    return made


def render(template: str, **values: Any) -> str:
    """The text without lone surrogates, which cannot be encoded."""
    text = environment().get_template(template).render(**values)
    return text.encode("utf-8", "replace").decode()


# -- the overview ----------------------------------------------------------------------------------


def overview(snapshot: Snapshot) -> str:
    """The live part of the overview, for the page and for every reader of the stream."""
    shares = [(state, snapshot.count(state)) for state in SHOWN]
    return render(
        "overview_live.html",
        snapshot=snapshot,
        now=snapshot.now,
        cards=cards(snapshot),
        shares=shares,
        strip=strip(shares),
        lines=busiest(snapshot),
        minutes=SPAN_S // 60,
    )


def cards(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The four charts, each with its current number."""
    samples, now = snapshot.samples, snapshot.now
    done, arrived = samples.rate("done", now), samples.rate("arrived", now)
    failed, retried = samples.rate("failed", now), samples.rate("retried", now)
    waiting, running = samples.level("waiting", now), samples.level("running", now)
    oldest = samples.level("oldest_s", now)
    per_s, waits, runs = done[-1] or 0.0, snapshot.count("enqueued"), snapshot.count("processing")
    dead = samples.total("failed", now)
    tried = samples.total("retried", now)
    return [
        _card(
            "Throughput", words.number(per_s), "done per second",
            [Line("done", done, filled=True), Line("arrived", arrived)], "",
            ("done", f"done {words.number(per_s)}/s"),
            ("arrived", f"arriving {words.number(arrived[-1] or 0.0)}/s"),
        ),
        _card(
            "Depth", words.number(waits), "ready and waiting",
            [Line("waiting-line", waiting, filled=True), Line("running-line", running)], "",
            ("waiting-line", f"{words.number(waits)} ready"),
            ("running-line", f"{words.number(runs)} running"),
        ),
        _card(
            "Oldest wait", *_oldest(snapshot),
            [Line("oldest", oldest, filled=True)], " s",
            ("oldest", "since it was ready"),
        ),
        _card(
            "Failures", words.number(dead),
            f"dead letter{'' if dead == 1 else 's'} in {SPAN_S // 60} min",
            [Line("failed-line", failed, filled=True), Line("retried", retried)], "/s",
            ("failed-line", f"{words.number(dead)} failed for good"),
            ("retried", f"{words.number(tried)} to be retried"),
        ),
    ]  # fmt: skip


def _oldest(snapshot: Snapshot) -> tuple[str, str]:
    if snapshot.oldest_at is None:
        return "none", "no job is ready"
    return words.span(snapshot.oldest_s), "of the first ready job"


def _card(
    title: str, value: str, unit: str, lines: list[Line], suffix: str, *keys: tuple[str, str]
) -> dict[str, Any]:
    least = 0.2 if title == "Failures" else 1.0
    drawn = chart(f"{title} over the last minutes; now {value} {unit}", lines, least)
    top = f"{words.number(drawn.top)}{suffix}"
    legend = [{"name": name, "words": text} for name, text in keys]
    return {
        "title": title, "value": value, "unit": unit,
        "svg": drawn.svg, "top": top, "keys": legend,
    }  # fmt: skip

"""The jobs of the mix, the same for every contestant. Standard library only, seeded."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

TYPES = ("mail", "thumbnail", "webhook", "report", "index")
"""Each has a queue of its own name, where the contestant has several queues."""
GROUPS = 10
"""Of each tenant, by the host that a webhook calls."""
SEED = 17
WORDS = (
    *("order", "invoice", "track", "album", "user", "playlist"),
    *("upload", "session", "search", "label", "region", "price"),
)


class MixJob(NamedTuple):
    """One job: its type, its tenant, and the arguments of its handler."""

    number: int
    type: str
    tenant: str
    fields: dict[str, Any]
    group: str | None
    """Used when limits are on: webhooks only."""
    key: str | None
    """Used when limits are on: thumbnails and index jobs only. No two jobs have the same key."""

    def body(self) -> dict[str, Any]:
        """For a queue without tenants: the tenant is one more argument."""
        return {"tenant": self.tenant, **self.fields}


def mix_jobs(number: int, tenants: int) -> Iterator[MixJob]:
    """So many jobs, with types and tenants in random order; the same jobs at every call."""
    dice = random.Random(SEED)
    for each in range(number):
        kind = dice.choice(TYPES)
        tenant = tenant_name(dice.randrange(tenants))
        fields = _FIELDS[kind](dice, each)
        group = f"host-{dice.randrange(GROUPS)}" if kind == "webhook" else None
        key = f"{kind}-{each}" if kind in ("thumbnail", "index") else None
        yield MixJob(each, kind, tenant, fields, group, key)


def tenant_name(place: int) -> str:
    return f"tenant-{place:04}"


def size(job: MixJob) -> int:
    """Bytes of its arguments as JSON."""
    return len(json.dumps(job.fields, separators=(",", ":")))


def _text(dice: random.Random, length: int) -> str:
    """Words, up to so many characters."""
    words = " ".join(dice.choices(WORDS, k=length // 4 + 1))
    return words[:length]


def _mail(dice: random.Random, number: int) -> dict[str, Any]:
    return {
        "to": f"user{number}@example.com",
        "template": dice.choice(WORDS),
        "subject": _text(dice, dice.randrange(20, 60)),
        "values": {word: dice.randrange(10_000) for word in dice.sample(WORDS, 4)},
    }


def _thumbnail(dice: random.Random, number: int) -> dict[str, Any]:
    return {"image": f"uploads/2026/05/{number:08}.jpg", "width": dice.choice((128, 256, 512))}


def _webhook(dice: random.Random, number: int) -> dict[str, Any]:
    return {
        "url": f"https://host-{number % GROUPS}.example.com/hooks",
        "event": "order.paid",
        "data": _text(dice, dice.randrange(300, 700)),
    }


def _report(dice: random.Random, number: int) -> dict[str, Any]:
    return {
        "report": number,
        "columns": dice.sample(WORDS, 8),
        "since": "2026-01-01",
        "until": "2026-06-30",
    }


def _index(dice: random.Random, number: int) -> dict[str, Any]:
    return {"document": number, "text": _text(dice, dice.randrange(700, 1450))}


_FIELDS = {
    "mail": _mail,
    "thumbnail": _thumbnail,
    "webhook": _webhook,
    "report": _report,
    "index": _index,
}

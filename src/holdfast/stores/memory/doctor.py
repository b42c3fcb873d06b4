"""What `holdfast doctor` reports of a memory store."""

from __future__ import annotations

from holdfast.core.finding import Finding, Level
from holdfast.store import Store


async def examine(store: Store) -> list[Finding]:
    """Nothing can be wrong with it, but users must know that it is not durable."""
    words = "jobs live in this process and end with it; use sqlite:// to keep them"
    return [Finding(Level.WARNING, "durability", words)]

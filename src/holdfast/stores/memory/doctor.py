"""What `holdfast doctor` can say of a memory store."""

from __future__ import annotations

from holdfast.finding import Finding, Level
from holdfast.store import Store


async def examine(store: Store) -> list[Finding]:
    """Nothing can be wrong with it, but its nature must be known."""
    words = "jobs live in this process and end with it; use sqlite:// to keep them"
    return [Finding(Level.WARNING, "durability", words)]

"""How the service behaves: one frozen value, checked where it is made."""

from __future__ import annotations

import msgspec

from holdfast.errors import ConfigError

MIB = 1024 * 1024
LENGTH_S_MAX = 24 * 3600.0
RATE_MAX = 1e6


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one client may cost. Sizes are in bytes, lengths in seconds."""

    body_max: int = 8 * MIB
    head_max: int = 64 * 1024
    """Bytes of a request's first line and headers."""
    head_s: float = 15.0
    """How long they may take to come, and how long a new connection may say nothing."""
    connections: int = 5000
    request_s: float = 60.0
    """How long any request but a stream may take: its body, its wait, and its answer."""
    wait_s: float = 30.0
    """The longest wait of a claim or for a result."""
    under_way: int = 2000
    """Requests at a time; past this the next is told to come later."""
    waiting: int = 1000
    """Of them, those that wait for work, results or events."""
    streams: int = 200
    """Readers of event streams."""
    share: float = 0.25
    """How large a part of these three one tenant may have, or one token that is for no tenant."""
    reads: int = 4
    """Pages that one of them may have read at a time; its next ones wait for these."""
    rate_per_s: float | None = None
    """Requests of one token in a second; None is no limit."""
    burst: int = 100

    def checked(self) -> Limits:
        for name in (
            "body_max",
            "head_max",
            "connections",
            "under_way",
            "waiting",
            "streams",
            "reads",
            "burst",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(field=name, why="must be at least 1")
        for name, least, most in (
            ("head_s", 0.001, LENGTH_S_MAX),
            ("request_s", 0.001, LENGTH_S_MAX),
            ("wait_s", 0.0, LENGTH_S_MAX),
            ("share", 0.001, 1.0),
            ("rate_per_s", 1e-6, RATE_MAX),
        ):
            value = getattr(self, name)
            if value is not None and not least <= value <= most:  # NaN fits no bounds.
                raise ConfigError(field=name, why=f"is {value:g}, must be {least:g} to {most:g}")
        return self

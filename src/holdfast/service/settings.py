"""The limits of the service: one frozen value, checked when it is created."""

from __future__ import annotations

import msgspec

from holdfast.core.errors import ConfigError

MIB = 1024 * 1024
LENGTH_S_MAX = 24 * 3600.0
RATE_MAX = 1e6


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The resources that one client may use. Sizes are in bytes, durations in seconds."""

    body_max: int = 8 * MIB
    head_max: int = 64 * 1024
    """Maximum bytes of the request line and headers."""
    head_s: float = 15.0
    """Time in which they must arrive, and how long a new connection may be idle."""
    connections: int = 5000
    request_s: float = 60.0
    """Maximum time of a request other than a stream: its body, its wait and its answer."""
    wait_s: float = 30.0
    """The longest wait of a claim or for a result."""
    under_way: int = 2000
    """Maximum concurrent requests. Further requests are told to try again later."""
    waiting: int = 1000
    """Maximum concurrent requests that wait for work, results or events."""
    streams: int = 200
    """Maximum readers of event streams."""
    share: float = 0.25
    """The fraction of these three that one tenant may use, or one token for every tenant."""
    reads: int = 4
    """Pages that one of these may read concurrently. Further reads wait."""
    rate_per_s: float | None = None
    """Maximum requests of one token per second. None: no limit."""
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
            if value is not None and not least <= value <= most:  # Also refuses NaN.
                raise ConfigError(field=name, why=f"is {value:g}, must be {least:g} to {most:g}")
        return self

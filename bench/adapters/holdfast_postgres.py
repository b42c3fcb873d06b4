"""On PostgreSQL."""

from __future__ import annotations

import probe  # type: ignore[import-not-found,unused-ignore]
from adapters._holdfast import system  # type: ignore[import-not-found,unused-ignore]

ENGINE = "postgres"
DISTS = ["holdfast", "asyncpg"]
REQUIRES = ["-e", ".[postgres,redis]", "uvloop==0.23.0"]
CONFIG = (
    "concurrency 1000, leases, heartbeats and tokens on, "
    "events=off, keep_s=0, uvloop; bulk = enqueue_many"
)
RECOVERY_KNOB = "lease_s=5 (default 60)"

Client, worker, setup = system(f"{probe.PG_DSN}?migrate=auto")

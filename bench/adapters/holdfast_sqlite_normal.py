"""On SQLite, durable against the death of processes."""

from __future__ import annotations

import probe  # type: ignore[import-not-found,unused-ignore]
from adapters._holdfast import system  # type: ignore[import-not-found,unused-ignore]

ENGINE = "sqlite"
DISTS = ["holdfast"]
REQUIRES = ["-e", ".[postgres,redis]", "uvloop==0.23.0"]
CONFIG = (
    "WAL, synchronous=NORMAL; concurrency 1000, leases, heartbeats and tokens on, "
    "events=off, keep_s=0, uvloop; bulk = enqueue_many"
)
RECOVERY_KNOB = "lease_s=5 (default 60)"

Client, worker, setup = system(f"sqlite:///{probe.SQLITE}?synchronous=normal")

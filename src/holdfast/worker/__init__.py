"""The worker process. Read worker.py first, then claim, run, lease, log, stall, adapt, pool, signals."""

from holdfast.worker.worker import Worker

__all__ = ["Worker"]

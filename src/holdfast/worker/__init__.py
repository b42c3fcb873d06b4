"""The worker process. Read worker.py first, then claim, run, lease, adapt, pool, signals."""

from holdfast.worker.worker import Worker

__all__ = ["Worker"]

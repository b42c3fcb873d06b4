"""The worker process. Read worker.py first, then claim, run, lease, pool, signals, supervise."""

from holdfast.worker.worker import Worker

__all__ = ["Worker"]

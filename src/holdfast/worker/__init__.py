"""The worker process. Read worker.py first, then claim, run, lease, lookout; then the rest."""

from holdfast.worker.worker import Worker

__all__ = ["Worker"]

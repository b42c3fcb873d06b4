"""Holdfast: a multi-tenant job queue for Python that never lets go of a job."""

from holdfast.app import App
from holdfast.config import Config
from holdfast.context import Context, Fail, Retry, Snooze, StopReason
from holdfast.enqueue import EnqueuedMany
from holdfast.errors import (
    HoldfastError,
    InvalidInput,
    JobCanceled,
    JobFailed,
    JobNotFound,
    PayloadTooLarge,
    QueueFull,
    StoreError,
    WaitTimeout,
)
from holdfast.job import By, Event, JobRecord, Reason, State
from holdfast.retry import RetryPolicy
from holdfast.store import Enqueued
from holdfast.tenant import Tenant
from holdfast.typed import Job

__all__ = [
    "App",
    "By",
    "Config",
    "Context",
    "Enqueued",
    "EnqueuedMany",
    "Event",
    "Fail",
    "HoldfastError",
    "InvalidInput",
    "Job",
    "JobCanceled",
    "JobFailed",
    "JobNotFound",
    "JobRecord",
    "PayloadTooLarge",
    "QueueFull",
    "Reason",
    "Retry",
    "RetryPolicy",
    "Snooze",
    "State",
    "StopReason",
    "StoreError",
    "Tenant",
    "WaitTimeout",
]

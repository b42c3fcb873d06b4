"""Holdfast: a multi-tenant job queue for Python that never lets go of a job."""

from holdfast.app import App
from holdfast.config import Config
from holdfast.context import Context, Fail, Retry, Snooze, StopReason, SyncContext
from holdfast.core.blob import BlobRef
from holdfast.core.errors import (
    BlobCorrupt,
    BlobNotFound,
    BlobsUnavailable,
    FlowRefused,
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
from holdfast.core.job import By, Event, JobRecord, Reason, State
from holdfast.core.retry import Backoff, Jitter, RetryPolicy
from holdfast.handle import JobHandle
from holdfast.journal_map import ChildrenFailed
from holdfast.many import EnqueuedMany
from holdfast.steps import TimedOut
from holdfast.store import Enqueued
from holdfast.tenant import Tenant
from holdfast.typed import Job
from holdfast.workflow.batch import Batch
from holdfast.workflow.flow import Flow
from holdfast.workflow.run import FlowRun, FlowStatus

__all__ = [
    "App",
    "Backoff",
    "Batch",
    "BlobCorrupt",
    "BlobNotFound",
    "BlobRef",
    "BlobsUnavailable",
    "By",
    "ChildrenFailed",
    "Config",
    "Context",
    "Enqueued",
    "EnqueuedMany",
    "Event",
    "Fail",
    "Flow",
    "FlowRefused",
    "FlowRun",
    "FlowStatus",
    "HoldfastError",
    "InvalidInput",
    "Jitter",
    "Job",
    "JobCanceled",
    "JobFailed",
    "JobHandle",
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
    "SyncContext",
    "Tenant",
    "TimedOut",
    "WaitTimeout",
]

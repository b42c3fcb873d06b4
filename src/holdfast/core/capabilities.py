"""What a store can do. Every difference between stores is a field here. Pure."""

from __future__ import annotations

import msgspec


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Every difference between stores that a caller can notice."""

    durable: bool
    """An enqueue that has returned survives the end of the process and a power loss."""
    shared: bool
    """Several processes can work on the same jobs."""
    encodes: bool
    """Payloads and results are bytes. False: the objects are passed on without encoding."""
    payload_max: int | None
    """The store's own payload limit in bytes, if it is below the configured limit."""
    transactional_enqueue: bool
    """Enqueue can join the caller's transaction."""
    transactional_ack: bool = False
    """The completion of a job can join the caller\'s transaction."""
    native_wakeup: bool
    """`wait` is woken across processes. False: callers must poll."""
    event_log: bool
    time_precision_us: int
    cluster: bool
    scopes: bool
    """Limits, rates, pauses, order and caps of scopes are supported. False: they are refused."""
    platform: bool
    """Limits, rates and pauses over all tenants are supported."""
    tiers: bool
    """Tiers and defaults of the platform are supported."""
    steps: bool
    """Journals, signals and joins are supported: steps of a job, and jobs that await others."""
    sources: bool
    """Sources with their shadows are supported."""

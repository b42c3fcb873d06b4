"""The settings of an app, as one frozen value. Errors name the unknown or invalid setting."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.bounds import (
    ATTEMPTS_MAX,
    CONCURRENCY_MAX,
    DELAY_S_MAX,
    LEASE_S_MAX,
    PAYLOAD_MAX,
    PREFETCH_MAX,
    QUEUE_MAX,
    QUEUED_CAP_MAX,
    RESULT_MAX,
    TENANT_MAX,
    WAIT_S_MAX,
)
from holdfast.core.check import check_name
from holdfast.core.edge_bounds import BLOB_GRACE_S_MIN, OFFLOADED_MAX
from holdfast.core.errors import ConfigError, InvalidInput, did_you_mean
from holdfast.core.retry import RetryPolicy, policy


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The settings with their defaults. Durations are in seconds, sizes in bytes."""

    tenant: str | None = None
    """The tenant of calls that name none: `app.enqueue(...)`. None: such calls are refused."""

    # Defaults of a job, for what its type and its enqueue do not set.
    queue: str = "default"
    max_attempts: int = 3
    retry: RetryPolicy | str = "default"
    timeout_s: float | None = None
    keep_s: float = 24 * 3600.0
    keep_failed_s: float = 7 * 24 * 3600.0

    # Payloads.
    codec: str = "json"
    pickle: bool = False
    payload_max: int = PAYLOAD_MAX
    result_max: int = RESULT_MAX

    # Payloads by reference.
    blobs: str | None = None
    """The URL of the bucket for blobs: file://, memory://, s3://, gs:// or az://. None: no
    blobs."""
    blob_above: int = 32 * 1024
    """Larger payloads, results and steps are offloaded to the bucket."""
    blob_tenant_max: int | None = None
    """About how many bytes a tenant may have in the bucket. None: no limit."""
    blob_grace_s: float = 6 * 3600.0
    """How long a blob is kept that no job names. Its enqueue must happen in this time."""
    blob_every_s: float = 10.0
    """Seconds between two of the 256 parts of the bucket that the upkeep looks at."""

    # The worker.
    concurrency: int = 10
    concurrency_min: int | None = None
    """The lowest concurrency of a worker that adapts. None: the worker does not adapt."""
    memory_max_mb: int | None = None
    """The worker lowers its concurrency above this memory use. None: no check."""
    prefetch: int | None = None
    """Leases that a worker holds beyond its running jobs. None: as many as `concurrency`, or more
    while jobs end fast.
    """
    lease_s: float = 60.0
    heartbeat_s: float | None = None
    """None: a third of the lease."""
    poll_s: float = 1.0
    """How long an idle worker sleeps if no wake-up arrives."""
    drain_s: float = 30.0
    unknown_delay_s: float = 5.0
    """First delay of a job whose type this worker does not know. It doubles each time."""

    ticks: bool = True
    """The worker fires the ticks of schedules, besides the jobs of its queues."""
    webhooks: bool = True
    """The worker sends the deliveries of webhooks too, if the extra `outbound` is installed."""
    webhooks_allow: tuple[str, ...] = ()
    """Networks and hosts that webhooks may call although they are not public."""

    # Upkeep.
    upkeep: bool = True
    leader_s: float = 5.0
    """How long a process stays upkeep leader without renewing."""
    rescue_every_s: float = 1.0
    prune_every_s: float = 5.0
    reconcile_every_s: float = 300.0
    """Seconds between recounts of the numbers that limits use."""
    recur_every_s: float = 10.0
    """Seconds between two pages of schedules whose next ticks the upkeep checks."""
    deliver_every_s: float = 1.0
    """Seconds between two rounds in which the upkeep makes deliveries of webhooks."""
    events_keep_s: float = 24 * 3600.0

    @property
    def beat_s(self) -> float:
        """Seconds between heartbeats."""
        return self.lease_s / 3 if self.heartbeat_s is None else self.heartbeat_s

    @property
    def floor(self) -> int:
        """The lowest concurrency of the worker."""
        return self.concurrency if self.concurrency_min is None else self.concurrency_min

    @classmethod
    def of(cls, **given: Any) -> Config:
        """Builds the settings. Raises ConfigError, which names the setting, for an unknown name, a
        wrong type or an impossible value.
        """
        for name, value in given.items():
            if name not in cls.__struct_fields__:
                hint = did_you_mean(name, cls.__struct_fields__)
                raise ConfigError(field=name, why=f"there is no such setting.{hint}")
            try:
                msgspec.convert({name: value}, cls)
            except msgspec.ValidationError as error:
                raise ConfigError(field=name, why=str(error).split(" - at ")[0]) from None
        config = cls(**given)
        _check(config)
        return config


def _check(config: Config) -> None:
    policy(config.retry)
    for field, given, longest in (
        ("tenant", config.tenant, TENANT_MAX),
        ("queue", config.queue, QUEUE_MAX),
    ):
        try:
            if given is not None:
                check_name(field, given, longest)
        except InvalidInput as error:
            raise ConfigError(field=field, why=error.why) from None
    if config.heartbeat_s is not None and not 0 < config.heartbeat_s < config.lease_s:
        raise ConfigError(field="heartbeat_s", why="must be more than 0 and less than lease_s")
    if config.floor > config.concurrency:
        raise ConfigError(field="concurrency_min", why="must not be more than concurrency")
    for name, least, most in _RANGES:
        value = getattr(config, name)
        if value is not None and not least <= value <= most:
            raise ConfigError(field=name, why=f"is {value}, must be {least} to {most}")


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("max_attempts", 1, ATTEMPTS_MAX),
    ("timeout_s", 0.001, DELAY_S_MAX),
    ("keep_s", 0, DELAY_S_MAX),
    ("keep_failed_s", 0, DELAY_S_MAX),
    ("payload_max", 1, 1 << 30),
    ("result_max", 0, 1 << 30),
    ("blob_above", 16 * 1024, OFFLOADED_MAX),
    ("blob_tenant_max", 1, QUEUED_CAP_MAX),
    ("blob_grace_s", BLOB_GRACE_S_MIN, DELAY_S_MAX),
    ("blob_every_s", 0.01, 24 * 3600.0),
    ("concurrency", 1, CONCURRENCY_MAX),
    ("concurrency_min", 1, CONCURRENCY_MAX),
    ("memory_max_mb", 1, 1 << 30),
    ("prefetch", 0, PREFETCH_MAX),
    ("lease_s", 0.1, LEASE_S_MAX),
    ("poll_s", 0.01, WAIT_S_MAX),
    ("drain_s", 0, 24 * 3600.0),
    ("unknown_delay_s", 0, 3600.0),
    ("leader_s", 0.5, 3600.0),
    ("rescue_every_s", 0.01, 3600.0),
    ("prune_every_s", 0.01, 24 * 3600.0),
    ("reconcile_every_s", 0.01, 24 * 3600.0),
    ("recur_every_s", 0.01, 24 * 3600.0),
    ("deliver_every_s", 0.01, 3600.0),
    ("events_keep_s", 0, DELAY_S_MAX),
)

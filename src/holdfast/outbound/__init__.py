"""Calls of handlers to other services: idempotency keys, retries, budgets and a circuit breaker."""

from holdfast.core.errors import OutboundError, OutboundLost, OutboundRefused
from holdfast.outbound.answer import Answer
from holdfast.outbound.client import Outbound, SyncOutbound
from holdfast.outbound.keys import IdempotencyKey, content_key
from holdfast.outbound.request import CallOptions

__all__ = [
    "Answer",
    "CallOptions",
    "content_key",
    "IdempotencyKey",
    "Outbound",
    "OutboundError",
    "OutboundLost",
    "OutboundRefused",
    "SyncOutbound",
]

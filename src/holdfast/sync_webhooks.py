"""The handle of a webhook without await, for blocking code."""

from __future__ import annotations

from typing import Any, Unpack

from holdfast.core.job import By
from holdfast.store import Enqueued, Page
from holdfast.sync_scopes import Bridge
from holdfast.webhooks.handle import (
    KEEP_S,
    UNNAMED,
    WebhookHandle,
    WebhookStatus,
)
from holdfast.webhooks.options import WebhookOptions
from holdfast.webhooks.stored import WebhookState


class SyncWebhook:
    """`holdfast.webhooks.handle.WebhookHandle` without await."""

    def __init__(self, bridge: Bridge, webhook: WebhookHandle) -> None:
        self._call = bridge.call
        self._handle = webhook
        self.tenant = webhook.tenant
        self.name = webhook.name

    def get(self) -> WebhookState:
        return self._call(self._handle.get())

    def status(self) -> WebhookStatus:
        return self._call(self._handle.status())

    def deliveries(self, **filters: Any) -> Page:
        return self._call(self._handle.deliveries(**filters))

    def set(
        self, *, expect: int | None = None, by: By | None = None, **given: Unpack[WebhookOptions]
    ) -> WebhookState:
        return self._call(self._handle.set(expect=expect, by=by, **given))

    def pause(self, reason: str, author: str = UNNAMED) -> WebhookState:
        return self._call(self._handle.pause(reason, author))

    def resume(
        self, author: str = UNNAMED, reason: str = "", *, skip: bool = False
    ) -> WebhookState:
        return self._call(self._handle.resume(author, reason, skip=skip))

    def rotate(
        self, *, keep: float = KEEP_S, secret: str | None = None, by: By | None = None
    ) -> WebhookState:
        return self._call(self._handle.rotate(keep=keep, secret=secret, by=by))

    def test(self, *, by: By | None = None) -> Enqueued[str]:
        return self._call(self._handle.test(by=by))

    def delete(self, *, expect: int | None = None, by: By | None = None) -> None:
        self._call(self._handle.delete(expect=expect, by=by))

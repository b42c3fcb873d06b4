"""Which workers send deliveries, and the same calls in blocking code."""

from __future__ import annotations

import pytest

from holdfast import App
from holdfast.core.errors import ConfigError, InvalidInput, WebhookNotFound
from holdfast.webhooks.definition import QUEUE
from holdfast.worker import Worker

URL = "https://receiver.example/hook"


def test_every_worker_sends_deliveries_unless_it_is_told_not_to() -> None:
    """Besides the jobs of its queues, as it fires ticks."""
    app = App("memory://")

    assert QUEUE in (Worker(app, queues=["mail"]).watch.queues or ())
    assert QUEUE not in (Worker(app, queues=["mail"], webhooks=False).watch.queues or ())


def test_a_worker_without_the_extra_leaves_them_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could only fail them."""
    monkeypatch.setattr("holdfast.worker.worker.find_spec", lambda name: None)

    assert QUEUE not in (Worker(App("memory://"), queues=["mail"]).watch.queues or ())


def test_a_wrong_entry_of_what_is_allowed_is_told_at_once() -> None:
    """Not by each delivery."""
    with pytest.raises(ConfigError, match=r"10\.0\.0\.0/99"):
        App("memory://", webhooks_allow=("10.0.0.0/99",))


def test_blocking_code_has_the_same_calls() -> None:
    """Without await."""
    app = App("memory://", tenant="acme")
    with app.sync as sync:
        hook = sync.tenant("acme").webhook("billing")
        with pytest.raises(WebhookNotFound):
            hook.get()
        made = hook.set(url=URL, kinds=["failed"])
        assert made.secret is not None
        assert [one.name for one in sync.webhooks()] == ["billing"]
        assert hook.rotate(keep=0).secret not in (None, made.secret)
        hook.pause("their data centre moves", "ann")
        with pytest.raises(InvalidInput, match="is paused"):
            hook.test()
        hook.resume("ann", skip=True)
        answer = hook.test()
        assert [job.id for job in hook.deliveries().jobs] == [answer.id]
        assert sum(hook.status().deliveries.values()) == 1
        hook.delete()
        assert sync.tenant("acme").webhooks() == []

"""What a store is that does its work by another one. The dispatcher knows no more of it."""

from __future__ import annotations

from holdfast.core.lifecycle import Transition
from holdfast.store import Store


class OuterStore:
    """A store in front of another one, `inner`."""

    inner: Store

    @property
    def secret(self) -> bool:
        """Whether logs must not show the texts of jobs, because they are stored encrypted."""
        return True

    async def prepare(self, tenant: str) -> None:
        """Before an enqueue on a blocking connection, in whose thread nothing can be awaited."""

    async def mapped(self, change: Transition) -> Transition:
        """A completion as `ack_using` takes it, which maps nothing. Raises what refuses it."""
        return change

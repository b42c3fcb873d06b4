"""Handles for the scopes of the platform: the whole store, a queue or a job type over all tenants.

`app.platform()` returns one. They limit all tenants together. Every limit, rate and pause of a job
applies at once: those of the platform, of its tenant, of its queue and of its group.
"""

from __future__ import annotations

from typing import Unpack

from holdfast.core.amend import Limits
from holdfast.core.errors import InvalidInput, did_you_mean
from holdfast.core.job import By
from holdfast.core.scope import PLATFORM, Scope, ScopeKind
from holdfast.scopes import ScopeHandle, ScopeState
from holdfast.store import Store
from holdfast.tiers import TierHandle, TierState, tiers
from holdfast.typed import Registry
from holdfast.types import Types


class TypeHandle(ScopeHandle):
    """A handle for a job type over all tenants. It refuses to limit a type that nobody knows."""

    def __init__(self, store: Store, name: str, registry: Registry) -> None:
        super().__init__(store, Scope("", ScopeKind.TYPE, name))
        self._registry = registry

    async def set(
        self, *, expect: int | None = None, by: By | None = None, **changes: Unpack[Limits]
    ) -> ScopeState:
        """As `ScopeHandle.set`. Raises InvalidInput if no app has registered the type."""
        await self._known()
        return await super().set(expect=expect, by=by, **changes)

    async def pause(self, reason: str, author: str) -> ScopeState:
        """As `ScopeHandle.pause`. Raises InvalidInput if no app has registered the type."""
        await self._known()
        return await super().pause(reason, author)

    async def resume(self, author: str, reason: str = "") -> ScopeState:
        """As `ScopeHandle.resume`. Raises InvalidInput if no app has registered the type: a
        misspelt name would leave the type that was meant paused.
        """
        await self._known()
        return await super().resume(author, reason)

    async def _known(self) -> None:
        """Raises InvalidInput unless the app or the store knows the type. What was set while it was
        known can still be changed.
        """
        name = self.scope.part
        if self._registry.named(name) is not None:
            return
        published = await Types(self._store).known([name])
        if name in published or (await self.get()).version:
            return
        hint = did_you_mean(name, {*published, *self._registry.names()})
        why = f"there is no job type {name!r}: no app has registered it.{hint}"
        raise InvalidInput(field="type", why=why)


class PlatformHandle(ScopeHandle):
    """A handle for the whole store: what limits all jobs of all tenants together."""

    def __init__(self, store: Store, registry: Registry | None = None) -> None:
        """`registry`: the types that the app itself knows, besides those that apps published."""
        super().__init__(store, PLATFORM)
        self._registry = Registry() if registry is None else registry

    def defaults(self) -> TierHandle:
        """A handle for what all tenants have unless their tier or their own settings say it."""
        return TierHandle(self._store, "")

    def tier(self, name: str) -> TierHandle:
        """A handle for a tier. Put tenants into it by `tenant.scope().set(tier=name)`."""
        if not name:
            raise InvalidInput(field="tier", why="must not be empty")
        return TierHandle(self._store, name)

    async def tiers(self) -> list[TierState]:
        """All tiers, by name; first the platform's defaults if they are set."""
        return await tiers(self._store)

    def queue(self, name: str) -> ScopeHandle:
        """A handle for a queue over all tenants."""
        return ScopeHandle(self._store, Scope("", ScopeKind.QUEUE, name))

    def type(self, name: str) -> TypeHandle:
        """A handle for a job type over all tenants."""
        return TypeHandle(self._store, name, self._registry)

"""Puts the mapper of an app's bucket in front of its store, and takes it away again."""

from __future__ import annotations

from holdfast.dispatch import Dispatcher
from holdfast.payload.offload import Offload
from holdfast.payload.through import ThroughStore


def offloading(store: Dispatcher, mapper: Offload) -> Dispatcher:
    """The store behind the mapper. One that is behind such a mapper already stays as it is."""
    if unmapped(store) is not store:
        return store
    return Dispatcher(ThroughStore(store.inner, mapper), store.observe)


def unmapped(store: Dispatcher) -> Dispatcher:
    """The store without such a mapper."""
    inner = store.inner
    if isinstance(inner, ThroughStore) and isinstance(inner.mapper, Offload):
        return Dispatcher(inner.inner, store.observe)
    return store

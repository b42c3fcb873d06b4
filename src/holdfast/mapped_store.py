"""Puts the mapper of an app's bucket in front of its store, and takes it away again."""

from __future__ import annotations

from holdfast.dispatch import Dispatcher
from holdfast.payload.offload import Offload
from holdfast.payload.through import ThroughStore


def offloading(store: Dispatcher, mapper: Offload) -> Dispatcher:
    """The store behind this mapper, instead of another of its kind."""
    inner = store.inner
    if isinstance(inner, ThroughStore) and inner.mapper is mapper:
        return store
    return Dispatcher(ThroughStore(unmapped(store).inner, mapper), store.observe)


def unmapped(store: Dispatcher) -> Dispatcher:
    """The store without such a mapper."""
    inner = store.inner
    if isinstance(inner, ThroughStore) and isinstance(inner.mapper, Offload):
        return Dispatcher(inner.inner, store.observe)
    return store

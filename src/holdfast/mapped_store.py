"""Puts the bucket of an app in front of its store, and takes it away again."""

from __future__ import annotations

import copy

from holdfast.dispatch import Dispatcher
from holdfast.payload.app_blobs import AppBlobs
from holdfast.payload.offload import Offload
from holdfast.payload.through import ThroughStore


def offloading(store: Dispatcher, blobs: AppBlobs | None) -> Dispatcher:
    """The store with this bucket, instead of another one; None: without any. Values are encrypted
    before they are offloaded, where the store encrypts.
    """
    inner = store.inner
    if isinstance(inner, ThroughStore) and isinstance(inner.mapper, Offload):
        if blobs is not None and inner.mapper is blobs.mapper:
            return store
        store = _plain(store, inner, inner.mapper)
        inner = store.inner
    if blobs is None:
        return store
    if not isinstance(inner, ThroughStore):
        blobs.mapper.inner = None
        return Dispatcher(ThroughStore(inner, blobs.mapper), store.observe)
    blobs.mapper.inner, made = inner.mapper, copy.copy(inner)
    made.mapper = blobs.mapper
    return Dispatcher(made, store.observe)


def _plain(store: Dispatcher, inner: ThroughStore, mapper: Offload) -> Dispatcher:
    if mapper.inner is None:
        return Dispatcher(inner.inner, store.observe)
    made = copy.copy(inner)
    made.mapper = mapper.inner
    return Dispatcher(made, store.observe)

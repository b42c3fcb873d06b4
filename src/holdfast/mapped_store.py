"""Puts the encryption and the bucket of an app in front of its store."""

from __future__ import annotations

import copy
from typing import Any

from holdfast.core.errors import ConfigError
from holdfast.dispatch import Dispatcher, dispatched
from holdfast.payload.app_blobs import AppBlobs
from holdfast.payload.offload import Offload
from holdfast.payload.through import ThroughStore
from holdfast.store import Store


def given_store(given: Store) -> Dispatcher:
    """A store that an app was given, behind a dispatcher."""
    if hasattr(given, "enqueue") and hasattr(given, "capabilities"):
        return dispatched(given)
    is_what = "None (an environment variable that is not set?)" if given is None else repr(given)
    why = f"is {is_what}; give a URL, for example App('sqlite:///jobs.db'), or a store"
    raise ConfigError(field="store", why=why)


def behind(store: Dispatcher, keys: Any, blobs: AppBlobs | None) -> Dispatcher:
    """The store behind the encryption and the bucket of an app, if it has these. One that is
    encrypted already stays so.
    """
    store = offloading(store, None)
    if keys is not None and not store.maps:
        from holdfast.encryption import encrypted  # Most apps do not need it.

        store = encrypted(store, keys)
    return offloading(store, blobs)


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

"""The bases of the shapes of the native API."""

from __future__ import annotations

import msgspec


class Strict(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of request shapes: an unknown field is an error."""


class Out(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Base of response shapes: fields without a value are omitted."""

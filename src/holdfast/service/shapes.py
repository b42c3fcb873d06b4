"""The base of the answers of the native API. `holdfast/fields.py` has the base of its requests."""

from __future__ import annotations

import msgspec


class Out(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Base of response shapes: fields without a value are omitted."""

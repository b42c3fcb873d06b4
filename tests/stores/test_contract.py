"""The behaviour suite, over every store."""

from __future__ import annotations

from holdfast.testing.contract import suite

globals().update(suite())

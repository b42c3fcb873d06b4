"""Sources: remote lists of objects that are polled, with a shadow and a job for each change.

`app.source` defines one, `acme.source("consignments")` is the handle of a tenant.
"""

from holdfast.core.cursor import Mark
from holdfast.core.source import ChangeKind, Item, Page, SourceChange, Strategy

__all__ = ["ChangeKind", "Item", "Mark", "Page", "SourceChange", "Strategy"]

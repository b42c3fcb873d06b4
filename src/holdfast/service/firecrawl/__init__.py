"""The Firecrawl wire: the routes that Firecrawl's own queue client speaks, at the root, over any
store.

`docs/service/firecrawl.md` says what is promised; `mapping.py` holds every rule of translation.
"""

from holdfast.service.firecrawl.routes import LINES, mount, mounting

__all__ = ["LINES", "mount", "mounting"]

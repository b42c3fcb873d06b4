"""The Firecrawl protocol: the HTTP routes that Firecrawl's queue client uses, over any store.

`docs/service/firecrawl.md` documents it; `mapping.py` contains all rules of translation.
"""

from holdfast.service.firecrawl.routes import LINES, mount, mounting

__all__ = ["LINES", "mount", "mounting"]

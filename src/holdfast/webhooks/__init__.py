"""Webhooks: signed events to other systems. Receivers check them by `verify`.

`acme.webhook("billing")` returns the handle of one, which `handle.py` defines. `reader.py` makes
deliveries from stored events, and `deliver.py` sends them.
"""

from holdfast.core.errors import SignatureRefused
from holdfast.webhooks.signing import Delivery, verify

__all__ = ["Delivery", "SignatureRefused", "verify"]

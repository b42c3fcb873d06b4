"""Where a call goes: the base is the programmer's, and no path leaves it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote, urlencode, urlsplit

from holdfast.core.edge_bounds import OUTBOUND_PATH_MAX
from holdfast.core.errors import ConfigError, InvalidInput

LITERAL = "/%:@!$&'()*+,;=~"
"""Characters of a path that are sent as they are, besides letters, digits and `_.-`."""
Params = Mapping[str, str | int | float]


def base_of(url: object) -> str:
    """The checked base URL, without a slash at its end."""
    if not isinstance(url, str):
        raise _wrong(f"must be text, not {type(url).__name__}")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise _wrong(str(error)) from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise _wrong("must be https://host/path, or http://")
    if parts.username is not None or parts.password is not None:
        raise _wrong("must not contain a user or password; pass headers= instead")
    if "?" in url or "#" in url:
        raise _wrong("must not have a query or a fragment")
    if not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise _wrong("has characters that a URL cannot have; encode them")
    return url.rstrip("/")


def host_of(base: str) -> str:
    """The host with its port, for people and for circuits."""
    return urlsplit(base).netloc.lower()


def path_of(path: object) -> str:
    """The checked path, encoded. Raises InvalidInput if it would lead out of the base."""
    if not isinstance(path, str):
        raise _refused(f"must be text, not {type(path).__name__}")
    if len(path) > OUTBOUND_PATH_MAX:
        raise _refused(f"has {len(path)} characters, at most {OUTBOUND_PATH_MAX}")
    if not path.startswith("/") or path.startswith("//"):
        raise _refused("must begin with one slash: it is a path below the base URL")
    if "?" in path or "#" in path:
        raise _refused("must not have a query or a fragment; pass params=")
    if "\\" in path or not path.isprintable():
        raise _refused("has a backslash or control characters")
    if any(unquote(part) in (".", "..") for part in unquote(path).split("/")):
        raise _refused("must not have the segments . and ..")
    return quote(path, safe=LITERAL)


def url_of(base: str, path: str, params: Params | None) -> str:
    """The whole URL of a call."""
    if not params:
        return base + path
    try:
        return f"{base}{path}?{urlencode(params, doseq=False)}"
    except (TypeError, ValueError) as error:
        raise InvalidInput(field="params", why=str(error)) from None


def _wrong(why: str) -> ConfigError:
    return ConfigError(field="base", why=why)


def _refused(why: str) -> InvalidInput:
    return InvalidInput(field="path", why=why)

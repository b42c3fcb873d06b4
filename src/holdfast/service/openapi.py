"""The OpenAPI 3.1 document of the table, and a page that shows it without any network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib.metadata import version
from typing import Any

import msgspec

from holdfast.service.endpoint import Route
from holdfast.service.problems import Problem
from holdfast.service.rights import Right

_PARAM = re.compile(r"\{(\w+)\}")
TEMPLATE = "#/components/schemas/{name}"

BYTES = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}
PROBLEMS = {
    "400": "The body is not JSON",
    "401": "No token, or an invalid one",
    "403": "The token does not allow the call",
    "404": "Not found, or belongs to another tenant",
    "408": "The request did not finish in time",
    "409": "The lease is lost, the state forbids it, or it was changed concurrently",
    "413": "Too large",
    "415": "The content type of the body is not the documented one",
    "422": "A value is invalid; `field` names it",
    "429": "Too many requests; try again after `Retry-After`",
    "501": "The store cannot do it",
    "503": "Temporarily unavailable; try again after `Retry-After`",
}


def document(routes: Sequence[Route]) -> dict[str, Any]:
    """The OpenAPI document, built from the table and the shapes."""
    routes = [route for route in routes if not route.hidden]
    shapes = [shape for route in routes for shape in (route.body, route.answer) if shape]
    _, components = msgspec.json.schema_components([*shapes, Problem], ref_template=TEMPLATE)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": version("holdfast"),
            "description": "A multi-tenant job queue that never lets go of a job. A caller whose"
            " token is for one tenant acts for it; any other names a tenant by the header"
            " Holdfast-Tenant.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}, {}],
    }


def _operation(route: Route) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": route.name,
        "summary": route.summary,
        "tags": [route.part],
        "parameters": [*_path(route), *_query(route), *_headers(route)],
        "responses": {**_answers(route), **_problems(route)},
    }
    if route.right is not None:
        found["description"] = f"Needs the right {route.right.value}."
    else:
        found["security"] = []
    if route.takes_bytes:
        found["requestBody"] = {"required": True, "content": BYTES}
    if route.body is not None:
        found["requestBody"] = {
            "required": not route.optional_body,
            "content": {"application/json": {"schema": _schema(route.body)}},
        }
    return found


def _schema(shape: Any) -> dict[str, Any]:
    [found], _ = msgspec.json.schema_components([shape], ref_template=TEMPLATE)
    return found


def _path(route: Route) -> list[dict[str, Any]]:
    limits = {"type": "string", "minLength": 1}
    kinds = {"type": "string", "enum": ["queue", "group"]}
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": kinds if name == "kind" else limits,
        }
        for name in _PARAM.findall(route.path)
    ]


def _query(route: Route) -> list[dict[str, Any]]:
    if route.query is None:
        return []
    _, components = msgspec.json.schema_components([route.query], ref_template=TEMPLATE)
    shape = components[route.query.__name__]
    return [
        {
            "name": name,
            "in": "query",
            "schema": _inlined(schema, components),
            **({"style": "form", "explode": False} if name in route.query.LISTS else {}),
        }
        for name, schema in shape["properties"].items()
    ]


def _inlined(schema: Any, components: dict[str, Any]) -> Any:
    """A schema without references, because the shapes of queries are not components."""
    if isinstance(schema, list):
        return [_inlined(each, components) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(components[schema["$ref"].rpartition("/")[2]], components)
    return {name: _inlined(each, components) for name, each in schema.items()}


def _headers(route: Route) -> list[dict[str, Any]]:
    found = []
    if route.tenant and route.right is not None:
        found.append("Holdfast-Tenant")
    signed = route.right in (Right.OPERATE, Right.PLATFORM) or route.name in ("cancel", "signal")
    if route.method != "GET" and signed:
        found.append("Holdfast-Reason")
    if route.name.startswith("enqueue") or route.name == "start_flow":
        found.append("Idempotency-Key")
    if route.streams:
        found.append("Last-Event-ID")
    return [{"name": name, "in": "header", "schema": {"type": "string"}} for name in found]


def _answers(route: Route) -> dict[str, Any]:
    if route.streams:
        content: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
    elif route.gives_bytes:
        content = BYTES
    elif route.answer is None:
        content = {"text/plain": {"schema": {"type": "string"}}}
    else:
        content = {"application/json": {"schema": _schema(route.answer)}}
    found = {"200": {"description": "Done", "content": content}}
    if route.status != 200:
        found[str(route.status)] = {"description": "Made", "content": content}
    if route.name == "ready":
        found["503"] = {"description": "Not ready", "content": content}
    return found


def _problems(route: Route) -> dict[str, Any]:
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    codes = PROBLEMS if route.right is not None else {}
    return {code: {"description": words, "content": content} for code, words in codes.items()}


@cache
def page(routes: tuple[Route, ...]) -> str:
    """A page that shows the table, without scripts and without the network."""
    parts: dict[str, list[Route]] = {}
    for route in routes:
        if not route.hidden:
            parts.setdefault(route.part, []).append(route)
    found = [_HEAD]
    for part, its in parts.items():
        found.append(f"<h2>{escape(part)}</h2>")
        found += [_shown(route) for route in its]
    return "".join([*found, "</main></html>"])


def _shown(route: Route) -> str:
    right = "anybody" if route.right is None else route.right.value
    named = "" if route.body is None else f"<p>body: {_fields(route.body)}</p>"
    asked = "" if route.query is None else f"<p>query: {_fields(route.query)}</p>"
    answered = "" if route.answer is None else f"<p>answer: {_fields(route.answer)}</p>"
    return (
        f"<article><h3><b>{route.method}</b> {escape(route.path)} <i>{right}</i></h3>"
        f"<p>{escape(route.summary)}</p>{named}{asked}{answered}</article>"
    )


def _fields(shape: Any) -> str:
    info = msgspec.inspect.type_info(shape)
    fields = getattr(info, "fields", ())
    return ", ".join(
        f"<code>{escape(field.name)}{'' if field.required else '?'}</code>" for field in fields
    )


_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Holdfast API</title>
<meta name="viewport" content="width=device-width"><style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}
article{border-top:1px solid #ccc;padding:.4rem 0}h3{font-size:1rem;margin:.2rem 0}
h3 b{display:inline-block;min-width:4.5rem}h3 i{color:#666;font-weight:400;float:right}
p{margin:.2rem 0}code{background:#f1f1f1;padding:0 .25rem;border-radius:3px}
@media(prefers-color-scheme:dark){body{background:#15181c;color:#ddd}code{background:#2a2f36}
article{border-color:#333}}</style><main><h1>Holdfast API</h1>
<p>The machine-readable document is at <a href="/openapi.json">/openapi.json</a>. A caller whose
token is for one tenant acts for it; any other names a tenant by the header
<code>Holdfast-Tenant</code>. Refusals are <code>application/problem+json</code> with a stable
<code>code</code>.</p>"""

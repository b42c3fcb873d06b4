"""A browser as far as cookies and forms go, without a socket; and jobs for it to look at."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from html.parser import HTMLParser
from urllib.parse import urlencode

from tests.service.asgi import Answer, Client

from holdfast.dashboard.session import FORM_COOKIE, FORM_FIELD, TOKEN_COOKIE

HOST = "127.0.0.1:80"
ERROR = "Traceback\nValueError: <img src=x onerror=alert(1)>"


class Visitor:
    """Keeps cookies, follows nothing, and sends forms as our pages do."""

    def __init__(self, client: Client, token: str | None) -> None:
        self._client = client
        self.cookies: dict[str, str] = {}
        if token is not None:
            self.cookies[TOKEN_COOKIE] = base64.urlsafe_b64encode(token.encode()).decode()

    async def get(self, path: str, **headers: str) -> Answer:
        return self._kept(await self._client.get(path, host=HOST, **self.cookie(), **headers))

    async def page(self, path: str) -> str:
        """The text of a page that must be there."""
        found = await self.get(path)
        assert found.status == 200, found
        return found.body.decode()

    async def send(
        self, path: str, spoiled: dict[str, str] | None = None, /, **fields: str
    ) -> Answer:
        """A form of ours, its token included; `spoiled` headers go over its own."""
        if FORM_COOKIE not in self.cookies:
            await self.get("/ui/login")
        body = urlencode({FORM_FIELD: self.cookies.get(FORM_COOKIE, ""), **fields}).encode()
        headers = {
            "host": HOST,
            "origin": f"http://{HOST}",
            "sec-fetch-site": "same-origin",
            "content-type": "application/x-www-form-urlencoded",
            **self.cookie(),
            **(spoiled or {}),
        }
        return self._kept(await self._client.post(path, body, **headers))

    def cookie(self) -> dict[str, str]:
        return {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}

    def _kept(self, answer: Answer) -> Answer:
        name, _, rest = answer.headers.get("set-cookie", "").partition("=")
        if name:
            value = rest.partition(";")[0].strip('"')
            self.cookies[name] = value
            if not value:
                del self.cookies[name]
        return answer


Visit = Callable[[str | None], Visitor]
"""`visit("reader")` is a browser with that token; None has none."""


class _Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def elements(text: str) -> list[tuple[str, dict[str, str | None]]]:
    """Every element that the text opens, with its attributes."""
    parser = _Elements()
    parser.feed(text)
    return parser.found


def tidy(text: str) -> str:
    """What a reader sees: no tags, single spaces."""
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())


async def seeded(api: Client) -> dict[str, str]:
    """A failed, a completed, a running and a ready job of acme, and one job of globex."""
    mail = {"type": "mail", "queue": "mail", "payload": {"to": "a"}}
    made = await api.post("/v1/jobs/batch", {"jobs": [mail] * 3})
    bad, good, running = [one["id"] for one in made.json["jobs"]]
    leases = (await api.post("/v1/claim", {"worker": "w", "limit": 3})).json["leases"]
    tokens = {lease["job"]["id"]: lease["token"] for lease in leases}
    acks = [
        {"id": bad, "token": tokens[bad], "outcome": "fail", "retry": False, "error": ERROR},
        {"id": good, "token": tokens[good], "outcome": "complete", "result": {"sent": "<i>"}},
    ]
    assert (await api.post("/v1/ack", {"acks": acks})).status == 200
    ready = await api.post(
        "/v1/jobs", {"type": "crawl", "queue": "crawl", "group": "g/1", "tags": ["night"]}
    )
    other = await api.post("/v1/jobs", {"type": "mail", "queue": "mail"}, holdfast_tenant="globex")
    return {
        "failed": bad,
        "completed": good,
        "processing": running,
        "enqueued": ready.json["id"],
        "globex": other.json["id"],
    }

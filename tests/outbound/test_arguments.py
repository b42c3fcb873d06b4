"""What a call refuses, and which keys it sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.outbound.conftest import Desk, Recorder, Time
from yarl import URL

from holdfast import Context, InvalidInput
from holdfast.core.errors import ConfigError, PayloadTooLarge
from holdfast.outbound import Answer, IdempotencyKey, Outbound, address, content_key

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@dataclass
class Contact:
    name: str
    email: str


@given(st.dictionaries(st.text(max_size=5), plain))
def test_a_content_key_does_not_depend_on_the_order_of_keys(data: dict[str, Any]) -> None:
    """X25: canonical JSON."""
    turned = dict(reversed(list(data.items())))

    assert content_key("contact", data) == content_key("contact", turned)


def test_different_contents_have_different_keys() -> None:
    """X25: type and data are separated, so that no two run together."""
    contents: list[tuple[str, Any]] = [
        ("a", "bc"), ("ab", "c"), ("a", ["bc"]), ("a", {"b": "c"}), ("a", 1), ("a", "1"),
        ("a", None), ("a", []),
    ]  # fmt: skip

    assert len({content_key(*one) for one in contents}) == len(contents)


def test_an_object_and_its_fields_are_one_content() -> None:
    """A payload may be a dataclass here and a dict there."""
    fields = {"name": "Ann", "email": "a@example.com"}

    assert content_key("contact", Contact(**fields)) == content_key("contact", fields)
    assert len(content_key("contact", fields)) == 64


def test_content_that_is_no_json_is_refused() -> None:
    """Its text would not be the same in another process."""
    with pytest.raises(InvalidInput, match="data: cannot be written as JSON"):
        content_key("contact", object())


@pytest.mark.parametrize(
    "path",
    [
        "contacts", "", "//evil.example", "https://evil.example/", "/a/../../admin", "/a/%2e%2e/b",
        "/a%2f..%2fb", "/./a", "/a?b=c", "/a#b", "/a\\b", "/a\nb", "/" + "a" * 2048, 7, None,
    ],
)  # fmt: skip
def test_a_path_that_leaves_the_base_is_refused(path: Any) -> None:
    """The base is the programmer's; a part of the path may come from a tenant."""
    with pytest.raises(InvalidInput, match="path"):
        address.path_of(path)


@given(st.text(max_size=30))
def test_no_path_changes_the_host(path: str) -> None:
    """Whatever is accepted is below the base."""
    try:
        url = address.url_of("https://api.example.com/v1", address.path_of(path), {"q": path})
    except InvalidInput:
        return

    parsed = URL(url, encoded=True)
    assert (parsed.host, parsed.path[:4], parsed.user) == ("api.example.com", "/v1/", None)


@pytest.mark.parametrize(
    "base",
    [
        "",
        "ftp://a",
        "https://",
        "https://u:p@a",
        "https://a?x=1",
        "https://a#b",
        "http://a:b",
        None,
    ],
)
def test_a_wrong_base_is_refused(base: Any) -> None:
    """When the client is made, which is at import."""
    with pytest.raises(ConfigError, match="base"):
        Outbound(base)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"json": object()}, "json"),
        ({"json": 1, "data": b""}, "json"),
        ({"data": "text"}, "data"),
        ({"headers": {"a b": "c"}}, "headers"),
        ({"headers": {"a": "b\r\nc: d"}}, "headers"),
        ({"headers": {"Idempotency-Key": "k"}}, "headers"),
        ({"key": ""}, "key"),
        ({"key": 7}, "key"),
        ({"key": IdempotencyKey("é")}, "key"),
        ({"correlation": "a\nb"}, "correlation"),
        ({"traceparent": "00-abc"}, "traceparent"),
        ({"timeout": 0}, "timeout"),
        ({"budget": float("nan")}, "budget"),
        ({"budgte": 1}, "budgte"),
        ({"data": bytes(8 * 1024 * 1024 + 1)}, "body"),
    ],
)
async def test_a_wrong_argument_is_named_and_nothing_is_sent(
    desk: Desk, options: dict[str, Any], field: str
) -> None:
    """Half a request would be worse than none."""
    recorder = Recorder()
    crm = Outbound("https://wrong.example.com", transport=recorder)
    raised: list[InvalidInput] = []

    async def handler(ctx: Context) -> None:
        try:
            await crm.post(ctx, "/contacts", **options)
        except InvalidInput as error:
            raised.append(error)

    await desk.run(handler)

    assert [error.field for error in raised] == [field]
    assert isinstance(raised[0], PayloadTooLarge) == (field == "body")
    assert recorder.sent == []


async def _headers(
    desk: Desk, *calls: dict[str, Any], method: str = "POST"
) -> list[dict[str, str]]:
    """The headers of calls that one job makes."""
    recorder = Recorder()
    crm = Outbound("https://api.example.com", headers={"Authorization": "s"}, transport=recorder)

    async def handler(ctx: Context) -> None:
        for options in calls:
            await crm.request(ctx, method, "/contacts", **options)

    await desk.run(handler)
    return [request.headers for request, _ in recorder.sent]


async def test_calls_of_one_job_have_keys_of_their_own_by_name(desk: Desk) -> None:
    """S4.10: a service must not take the second call for a repetition of the first."""
    made = await _headers(desk, {}, {"key": "a"}, {"key": "b"}, {"key": content_key("c", 1)})

    keys = [headers["idempotency-key"] for headers in made]
    assert len(set(keys)) == 4
    assert keys[3] == content_key("c", 1)
    assert [headers["authorization"] for headers in made] == ["s"] * 4


async def test_a_safe_method_needs_no_key(desk: Desk) -> None:
    """It changes nothing; a key is sent if one is named."""
    first, second = await _headers(desk, {}, {"key": "a"}, method="GET")

    assert "idempotency-key" not in first
    assert "idempotency-key" in second


async def test_a_call_names_its_job_and_its_trace(desk: Desk) -> None:
    """S4.27: both sides find it in their logs."""
    trace = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    made = await _headers(
        desk, {"key": "a"}, {"key": "b", "correlation": "ü", "traceparent": trace}
    )

    assert len(made[0]["x-correlation-id"]) > 10
    assert "traceparent" not in made[0]
    assert (made[1]["x-correlation-id"], made[1]["traceparent"]) == ("%C3%BC", trace)


async def test_one_key_for_two_requests_of_a_run_is_refused(desk: Desk) -> None:
    """The service would answer the second by the first one's answer."""
    crm = Outbound("https://api.example.com", transport=Recorder(), timing=Time().timing)

    async def handler(ctx: Context) -> int:
        answers: list[Answer] = []
        for name in ("Ann", "Ann", "Bob"):
            answers.append(await crm.post(ctx, "/contacts", json=name))
        return len(answers)

    job = await desk.run(handler, max_attempts=1)

    assert "another request with the same idempotency key" in (job.error or "")


def test_a_client_does_not_show_its_headers() -> None:
    """They may be secret."""
    crm = Outbound("https://api.example.com/v1/", headers={"Authorization": "secret"})

    assert repr(crm) == "Outbound('https://api.example.com/v1')"

"""Slow, silent and endless clients, over a real socket: each is cut off, the others are served."""

from __future__ import annotations

import contextlib
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.service.live import serving

LIMITS = ("--limit=head_s=0.3", "--limit=head_max=4096", "--limit=connections=5")
BOUND_S = 10.0


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a service that has little patience."""
    with serving("memory://", *LIMITS) as url:
        yield int(url.rpartition(":")[2])


def _connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=BOUND_S)


def _until_closed(connection: socket.socket) -> bytes:
    """All that is said until the service hangs up; a time-out if it never does."""
    heard = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            heard += part
    return heard


def _served(connection: socket.socket) -> bool:
    """Whether one whole answer comes."""
    heard = b""
    while not heard.endswith(b'{"status":"ok"}'):
        part = connection.recv(65536)
        if not part:
            return False
        heard += part
    return heard.startswith(b"HTTP/1.1 200 ")


def _alive(port: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=BOUND_S) as answer:
        return bool(answer.status == 200)


def test_a_client_that_says_nothing_is_cut_off(port: int) -> None:
    """A connection is not for ever."""
    with _connected(port) as silent:
        assert _until_closed(silent) == b""
    assert _alive(port)


def test_a_head_that_never_ends_is_cut_off(port: int) -> None:
    """By time, however slowly it comes."""
    with _connected(port) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: y")
        assert _until_closed(slow) == b""
    assert _alive(port)


def test_a_head_that_is_too_large_is_refused(port: int) -> None:
    """Before it is kept."""
    with _connected(port) as endless:
        endless.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: " + b"y" * 8000)
        assert _until_closed(endless).startswith(b"HTTP/1.1 400 ")
    assert _alive(port)


def test_a_head_in_two_pieces_is_served(port: int) -> None:
    """As networks do it, and again on the same connection."""
    with _connected(port) as pieces:
        for _ in range(2):
            pieces.sendall(b"GET /healthz HTTP/1.1\r\nho")
            pieces.sendall(b"st: localhost\r\n\r\n")
            assert _served(pieces)


def test_past_the_connections_the_next_is_closed(port: int) -> None:
    """Those that are there go on."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(_connected(port)) for _ in range(5)]
        for one in held:
            one.sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert _served(one)
        with _connected(port) as one_more:
            assert _until_closed(one_more) == b""
        held[0].sendall(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert _served(held[0])


def test_limits_that_do_not_exist_are_refused(tmp_path: Path) -> None:
    """By name, before anything is opened."""
    with (
        pytest.raises(AssertionError, match="patience"),
        serving("memory://", "--limit=patience=1"),
    ):
        pass

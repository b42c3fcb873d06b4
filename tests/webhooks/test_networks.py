"""Where deliveries may go: no address that is not public, however it is written."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from holdfast.core.errors import ConfigError, InvalidInput
from holdfast.webhooks.networks import (
    Allowed,
    allowed,
    check_addresses,
    is_public,
    parsed,
    target_of,
)

NOBODY = Allowed()
PRIVATE = [
    "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200",
    "127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.169.254", "172.16.0.1",
    "172.31.255.255", "192.0.0.1", "192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1",
    "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.250",
    "240.0.0.1", "255.255.255.255",
    "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:8.8.8.8",
    "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::a00:1", "100::1",
    "2001::1", "2001:10::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::1",
    "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1",
    "ff02::1", "2606:4700:4700::1111%1",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "1.1.1.1", "93.184.216.34", "172.15.0.1", "172.32.0.1", "2606:4700:4700::1111"]


@pytest.mark.parametrize("address", PRIVATE)
def test_an_address_that_is_not_public_is_refused(address: str) -> None:
    """As the host of a URL, and as what a name leads to, alone or beside a public one."""
    assert not is_public(ip_address(address))
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(InvalidInput):
        target_of(f"http://{host}/", NOBODY)
    named = target_of("https://receiver.example/", NOBODY)
    for found in ([address], ["8.8.8.8", address]):
        with pytest.raises(InvalidInput) as refused:
            check_addresses(named, found, NOBODY)
        assert address not in str(refused.value)


@pytest.mark.parametrize("address", PUBLIC)
def test_a_public_address_is_called(address: str) -> None:
    """The rules are no wider than they must be."""
    host = f"[{address}]" if ":" in address else address

    assert target_of(f"https://{host}:8443/x", NOBODY).literal == address


WRONG = [
    "", "receiver.example", "//receiver.example/", "ftp://receiver.example/", "file:///etc/passwd",
    "gopher://receiver.example/", "javascript:alert(1)", "http:///x", "http://", "https://:443/",
    "http://user@receiver.example/", "http://user:hunter2@receiver.example/", "http://@127.0.0.1/",
    "http://receiver.example:80@127.0.0.1/", "http://receiver.example/#x", "http://a b/",
    "http://receiver.example\\@127.0.0.1/", "http://receiver.example:99999/",
    "http://receiver.example:x/", "http://receiver.example:22/", "http://receiver.example:25/",
    "http://receiver.example:0/", "http://réceiver.example/", "http://receiver.example/\n",
    "http://receiver.example/\tx", "http://127.1/", "http://0x7f000001/", "http://2130706433/",
    "http://0177.0.0.1/", "http://127.0.0.1./", "http://[::1/", "http://[::1]x/", "http://%31/",
    "http://1/", "http://" + "a" * 3000 + "/", None, 7, b"http://receiver.example/",
]  # fmt: skip


@pytest.mark.parametrize("url", WRONG, ids=repr)
def test_a_url_that_is_written_oddly_is_refused(url: Any) -> None:
    """So that no two parsers read two hosts in it."""
    with pytest.raises(InvalidInput) as refused:
        target_of(url, NOBODY)

    assert refused.value.field == "url"
    assert "hunter2" not in str(refused.value)


def test_the_platform_allows_networks_and_hosts() -> None:
    """An intranet, or a test: any port of an address, and any address of a host."""
    allow = parsed(["10.1.0.0/16", "127.0.0.1", "fd00::/8", "hooks.internal"])

    assert target_of("http://10.1.2.3:22/", allow).port == 22
    assert target_of("http://127.0.0.1:9/", allow).literal == "127.0.0.1"
    assert target_of("http://[fd00::1]/", allow).literal == "fd00::1"
    internal = target_of("http://Hooks.Internal.:25/x", allow)
    assert check_addresses(internal, ["192.168.0.1"], allow) == ["192.168.0.1"]
    for url in ("http://10.2.0.1/", "http://127.0.0.2/", "http://[::ffff:10.1.2.3]/"):
        with pytest.raises(InvalidInput):
            target_of(url, allow)
    other = target_of("http://other.internal/", allow)
    with pytest.raises(InvalidInput):
        check_addresses(other, ["192.168.0.1"], allow)


@pytest.mark.parametrize("entry", ["10.0.0.0/33", "10.0.0.1/8", "a b", "/8", "...", "ü.example"])
def test_a_wrong_entry_of_the_setting_is_named(entry: str) -> None:
    """An operator who mistypes a network must not allow something else."""
    with pytest.raises(ConfigError) as refused:
        parsed([entry])

    assert refused.value.field == "webhooks_allow"


def test_the_environment_adds_to_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """For commands and services, which have no code of their own."""
    monkeypatch.setenv("HOLDFAST_WEBHOOKS_ALLOW", " 10.0.0.0/8, hooks.internal,")

    found = allowed(["127.0.0.1"])

    assert found.networks == ("127.0.0.1/32", "10.0.0.0/8")
    assert found.hosts == {"hooks.internal"}

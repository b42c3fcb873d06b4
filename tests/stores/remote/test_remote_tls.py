"""https://: the service's certificate is checked, against the authority that the URL names."""

from __future__ import annotations

import datetime
import ipaddress
import time
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.servers.service import Host

from holdfast.core.errors import ConfigError, StoreUnavailable
from holdfast.stores import open_store
from holdfast.testing.contract.builders import job


def certificate(folder: Path) -> tuple[Path, Path]:
    """A key, and a certificate for this machine that it signed itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "holdfast test")])
    now = datetime.datetime.now(tz=datetime.UTC)
    here = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(here, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    key_file, file = folder / "key.pem", folder / "cert.pem"
    file.write_bytes(made.public_bytes(pem))
    key_file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return key_file, file


async def test_a_certificate_is_checked(own_host: Host, tmp_path: Path) -> None:
    """By the file that ca names, or not at all by verify=off; else it is refused."""
    key, file = certificate(tmp_path)
    place = own_host.place("tls")
    port = place.serve(ssl_keyfile=str(key), ssl_certfile=str(file))
    url = f"https://127.0.0.1:{port}?timeout_s=20"

    started = time.monotonic()
    with pytest.raises(StoreUnavailable, match="certificate"):
        await open_store(url).open()
    assert time.monotonic() - started < 5, "no second try makes it better"
    for number, option in enumerate((f"ca={file}", "verify=off")):
        store = open_store(f"{url}&{option}")
        await store.open()
        assert (await store.enqueue([job(f"j{number}")]))[0].created
        await store.close()


async def test_a_file_of_certificates_that_is_not_there_is_named() -> None:
    """When the store is opened."""
    with pytest.raises(ConfigError, match="/nowhere"):
        await open_store("https://127.0.0.1:1?ca=/nowhere.pem").open()

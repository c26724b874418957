"""A database with a certificate by a private authority, which only the resource's Secret knows."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import trustme

from tests.integration.tls_postgres import TlsPostgres, tls_postgres
from tests.integration.wire import counted
from tests.operator.control_plane.api import Manifest
from tests.operator.site import Site

VERIFIED = "?sslmode=verify-full"


@pytest.fixture(scope="module")
def tls_server() -> Iterator[TlsPostgres]:
    with tls_postgres() as server:
        yield server


def make_relay(site: Site, url: str, ca: str) -> Manifest:
    """A relay whose database is checked by this certificate."""
    site.make_secret("shop-db", uri=url)
    site.make_secret("shop-rabbitmq", uri=site.rabbitmq_url)
    site.make_secret("shop-ca", **{"ca.crt": ca})
    database = {
        "secretRef": {"name": "shop-db"},
        "caSecretRef": {"name": "shop-ca"},
        "manageSchema": "Create",
    }
    relay = site.relay(database=database)
    site.api.create(relay)
    return relay


@pytest.mark.parametrize("query", ["", VERIFIED, "?sslmode=disable"])
async def test_database_with_a_private_authority_is_entered_by_its_secret(
    site: Site, tls_server: TlsPostgres, query: str
) -> None:
    async with counted(f"{tls_server.url}{query}") as passed:
        relay = make_relay(site, passed.url, tls_server.ca)
        async with site.operating():
            await site.until_condition(relay, "DatabaseReady", "True", "TableReady")
            assert site.condition(relay, "CredentialsValid")["message"] == ""
    assert_hidden(passed.sent, tls_server.url)


@pytest.mark.parametrize("query", ["", VERIFIED, "?sslmode=disable"])
async def test_server_of_another_authority_gets_a_condition_and_no_password(
    site: Site, tls_server: TlsPostgres, query: str
) -> None:
    another = trustme.CA().cert_pem.bytes().decode()
    async with counted(f"{tls_server.url}{query}") as passed:
        relay = make_relay(site, passed.url, another)
        async with site.operating():
            said = await site.until_condition(relay, "CredentialsValid", "False", "Unreachable")
            assert "certificate" in said["message"]
            await site.until_condition(relay, "DatabaseReady", "Unknown")
            # Again and again, as everything that may pass.
            looks = passed.count
            await site.until(lambda: passed.count > looks, "another look")
    assert_hidden(passed.sent, tls_server.url)


def assert_hidden(sent: bytearray, url: str) -> None:
    parts = urlsplit(url)
    assert sent.startswith(b"\0\0\0\x08\x04\xd2\x16\x2f"), "the request for TLS"
    assert parts.username is not None
    for secret in (f"user\0{parts.username}\0", f"database\0{parts.path[1:]}\0", "SELECT", "md5", "SCRAM"):
        assert secret.encode() not in sent

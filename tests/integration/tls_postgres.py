"""A private Postgres that speaks TLS, with a certificate by an authority of its own."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import asyncpg
import trustme

from outbox.table import quote_literal
from outbox_cli.local import start


@dataclass(frozen=True)
class TlsPostgres:
    """A server that refuses whoever comes without TLS."""

    url: str
    """The URL of its superuser, which says nothing of TLS."""
    ca: str
    """The certificate of who has signed its own, in PEM."""


@contextmanager
def tls_postgres() -> Iterator[TlsPostgres]:
    """Start one, whose certificate is for 127.0.0.1."""
    authority = trustme.CA()
    with start(rabbitmq=False, environment={}) as services:
        url = services.postgres.url
        asyncio.run(_configure(url, authority.issue_cert("127.0.0.1")))
        yield TlsPostgres(url, authority.cert_pem.bytes().decode())


async def _configure(url: str, certificate: trustme.LeafCert) -> None:
    connection = await asyncpg.connect(url)
    chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
    # By the server itself, whose user the key has to belong to.
    await _write(connection, "server.key", certificate.private_key_pem.bytes().decode())
    await _write(connection, "server.crt", chain.decode())
    await _write(connection, "pg_hba.conf", "hostssl all all all md5\n")
    await connection.execute("ALTER SYSTEM SET ssl = on")
    await connection.execute("SELECT pg_reload_conf()")
    await connection.close()


async def _write(connection: asyncpg.Connection, name: str, text: str) -> None:
    lines = f"SELECT unnest(string_to_array({quote_literal(text.strip())}, chr(10)))"
    await connection.execute(f"COPY ({lines}) TO PROGRAM 'umask 077; cat > {name}'")

"""A server learns nothing of whoever connects by a URL that somebody else wrote but what is in the URL."""

import hashlib
import ssl
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import trustme

from outbox_core.database import Database, DatabaseError, DatabaseURLError
from tests.integration.credential_collector import collector

SECRET = "s3cret"  # noqa: S105 - made up


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An administrator's machine, with a home folder and without settings of Postgres."""
    for name in ("PGPASSWORD", "PGPASSFILE", "PGUSER", "PGDATABASE", "PGPORT", "PGSSLMODE", "PGSSLCERT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def by_variable(_: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", SECRET)


def by_file(home: Path, _: pytest.MonkeyPatch) -> None:
    write_private(home / ".pgpass", f"*:*:*:*:{SECRET}\n")


def by_other_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_private(home / "passwords", f"*:*:*:*:{SECRET}\n")
    monkeypatch.setenv("PGPASSFILE", str(home / "passwords"))


def write_private(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)


@pytest.mark.parametrize("place", [by_variable, by_file, by_other_file])
@pytest.mark.parametrize("ask", ["cleartext", "md5"])
async def test_no_password_of_this_machine_reaches_a_foreign_server(
    home: Path, monkeypatch: pytest.MonkeyPatch, place: Any, ask: str
) -> None:
    place(home, monkeypatch)
    empty = {"cleartext": b"", "md5": md5("x", "")}[ask]
    async with collector(ask) as server:
        url = f"postgresql://x@127.0.0.1:{server.port}/db"
        with pytest.raises(DatabaseError):
            await Database(url, ambient=False).connect()
        assert server.secrets == [empty]
        # The same by a URL that this person typed is what they rely on.
        with pytest.raises(DatabaseError):
            await Database(url).connect()
        assert server.secrets[1] in (SECRET.encode(), md5("x", SECRET))


def md5(user: str, password: str) -> bytes:
    inner = hashlib.md5((password + user).encode()).hexdigest()  # noqa: S324 - Postgres' own
    return b"md5" + hashlib.md5(inner.encode() + b"salt").hexdigest().encode()  # noqa: S324


async def test_no_name_of_this_machine_reaches_a_foreign_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGDATABASE", "secret_project")
    async with collector() as server:
        with pytest.raises(DatabaseError):
            await Database(f"postgresql://x:y@127.0.0.1:{server.port}", ambient=False).connect("name")
    [startup] = server.startups
    assert (startup["user"], startup["database"]) == ("x", "x")
    assert server.secrets == [b"y"]


@pytest.mark.parametrize("mode", ["prefer", "require"])
@pytest.mark.parametrize("is_in_home", [True, False])
async def test_no_certificate_of_this_machine_reaches_a_foreign_server(
    home: Path, monkeypatch: pytest.MonkeyPatch, mode: str, is_in_home: bool
) -> None:
    authority = trustme.CA()
    own = home / ".postgresql" if is_in_home else home
    own.mkdir(exist_ok=True)
    issued = authority.issue_cert("admin.invalid")
    issued.private_key_pem.write_to_path(own / "postgresql.key")
    issued.cert_chain_pems[0].write_to_path(own / "postgresql.crt")
    if not is_in_home:
        monkeypatch.setenv("PGSSLCERT", str(own / "postgresql.crt"))
        monkeypatch.setenv("PGSSLKEY", str(own / "postgresql.key"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    authority.configure_trust(tls)
    tls.verify_mode = ssl.CERT_OPTIONAL
    async with collector(tls=tls) as server:
        url = f"postgresql://x@127.0.0.1:{server.port}/db?sslmode={mode}"
        with pytest.raises(DatabaseError):
            await Database(url, ambient=False).connect()
        assert server.certificates == [None]
        with pytest.raises(DatabaseError):
            await Database(url).connect()
        assert server.certificates[1]


async def test_no_ticket_of_this_machine_is_got_for_a_foreign_server(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    context = SimpleNamespace(step=lambda _: b"ticket")
    kerberos = SimpleNamespace(
        Name=lambda name, _: asked.append(name),
        NameType=SimpleNamespace(hostbased_service=1),
        SecurityContext=lambda **_: context,
    )
    monkeypatch.setitem(sys.modules, "gssapi", kerberos)
    async with collector("kerberos") as server:
        url = f"postgresql://x@127.0.0.1:{server.port}/db"
        with pytest.raises(DatabaseError):
            await Database(url, ambient=False).connect()
        assert (asked, server.secrets) == ([], [])
        with pytest.raises(DatabaseError):
            await Database(url).connect()
        assert (asked, server.secrets) == (["postgres@127.0.0.1"], [b"ticket"])


@pytest.mark.parametrize("mode", ["", "?sslmode=allow", "?sslmode=prefer", "?sslmode=disable"])
async def test_a_server_without_tls_is_used_unless_the_url_requires_it(postgres_url: str, mode: str) -> None:
    connection = await Database(f"{postgres_url}{mode}", ambient=False).connect()
    assert await connection.fetchval("SELECT 1") == 1
    await connection.close()


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
async def test_a_server_without_tls_is_refused_if_the_url_requires_it(postgres_url: str, mode: str) -> None:
    with pytest.raises(DatabaseError, match="rejected SSL upgrade"):
        await Database(f"{postgres_url}?sslmode={mode}", ambient=False).connect()


@pytest.mark.parametrize("mode", ["verify-ca", "verify-full"])
async def test_a_certificate_that_nobody_known_has_signed_is_refused(mode: str) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(tls)
    async with collector(tls=tls) as server:
        url = f"postgresql://x:y@127.0.0.1:{server.port}/db?sslmode={mode}"
        with pytest.raises(DatabaseError, match="certificate verify failed"):
            await Database(url, ambient=False).connect()
    assert server.secrets == []


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("x:y@h/db?sslrootcert=/etc/passwd", "names files.*leave sslrootcert out"),
        ("x:y@h/db?sslcert=/a&sslkey=/b", "leave sslcert, sslkey out"),
        ("x@h/db?passfile=/home/admin/.pgpass", "leave passfile out"),
        ("h/db?service=production", "leave service out"),
        ("x@h/db?servicefile=/a", "leave servicefile out"),
        ("x@/db?host=/run/postgresql", "names no host"),
        ("x@/db", "names no host"),
        ("x@h,%2Frun%2Fpostgresql/db", "names no host"),
        ("h/db", "names no user"),
    ],
)
def test_a_foreign_url_that_means_something_of_this_machine_is_refused(rest: str, words: str) -> None:
    with pytest.raises(DatabaseURLError, match=words):
        Database(f"postgresql://{rest}", ambient=False)

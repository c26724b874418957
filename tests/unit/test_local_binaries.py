from pathlib import Path

import pytest

from outbox_cli.local import binaries, docker
from outbox_cli.local.binaries import find_epmd, find_postgres, find_rabbitmq, observe, rabbitmq_version
from outbox_cli.local.choice import POSTGRES, RABBITMQ

ON_PATH = "usr/sbin/rabbitmq-server"
DEBIAN_WRAPPER = "usr/lib/rabbitmq/bin/rabbitmq-script-wrapper"
DEBIAN_SCRIPT = "usr/lib/rabbitmq/bin/rabbitmq-server"


def make_programs(system: Path, *names: str) -> None:
    for name in names:
        program = system / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.touch(mode=0o755)


@pytest.mark.parametrize(
    ("programs", "found"),
    [
        ([], None),
        (
            ["usr/lib/postgresql/9.6/bin/postgres", "usr/lib/postgresql/9.6/bin/initdb"],
            "usr/lib/postgresql/9.6/bin/postgres",
        ),
        (
            [
                f"usr/lib/postgresql/{major}/bin/{name}"
                for major in (9, 15, 17)
                for name in ("postgres", "initdb")
            ],
            "usr/lib/postgresql/17/bin/postgres",
        ),
        (
            ["usr/lib/postgresql/17/bin/postgres", "usr/bin/postgres", "usr/bin/initdb"],
            "usr/bin/postgres",
        ),
        (["usr/bin/postgres"], None),
    ],
    ids=["nothing", "one", "the newest", "PATH first", "no initdb beside it"],
)
def test_postgres_is_found(tmp_path: Path, programs: list[str], found: str | None) -> None:
    make_programs(tmp_path, *programs)
    assert find_postgres(tmp_path, path=str(tmp_path / "usr/bin")) == (tmp_path / found if found else None)


@pytest.mark.parametrize(
    ("programs", "found"),
    [
        ([], None),
        ([DEBIAN_WRAPPER, DEBIAN_SCRIPT], DEBIAN_SCRIPT),
        (
            [DEBIAN_WRAPPER, "usr/lib/rabbitmq/lib/rabbitmq_server-4.1.0/sbin/rabbitmq-server"],
            "usr/lib/rabbitmq/lib/rabbitmq_server-4.1.0/sbin/rabbitmq-server",
        ),
        ([DEBIAN_WRAPPER], ON_PATH),
        ([ON_PATH, DEBIAN_SCRIPT], ON_PATH),
    ],
    ids=["nothing", "not Debian's wrapper", "the installation's folder", "the wrapper last", "PATH first"],
)
def test_rabbitmq_is_found(tmp_path: Path, programs: list[str], found: str | None) -> None:
    make_programs(tmp_path, *programs)
    if DEBIAN_WRAPPER in programs:
        (tmp_path / ON_PATH).parent.mkdir(parents=True)
        (tmp_path / ON_PATH).symlink_to(tmp_path / DEBIAN_WRAPPER)
    assert find_rabbitmq(tmp_path, path=str(tmp_path / "usr/sbin")) == (tmp_path / found if found else None)


def test_epmd_is_found_below_the_runtime_where_it_is_not_on_path(tmp_path: Path) -> None:
    make_programs(tmp_path, "usr/lib/erlang/erts-13.1.5/bin/epmd")
    assert find_epmd(tmp_path, path="") == tmp_path / "usr/lib/erlang/erts-13.1.5/bin/epmd"


@pytest.mark.parametrize(
    ("program", "version"),
    [
        ("usr/lib/rabbitmq/lib/rabbitmq_server-3.10.8/sbin/rabbitmq-server", "3.10"),
        ("opt/homebrew/Cellar/rabbitmq/sbin/rabbitmq-server", ""),
    ],
)
def test_the_version_of_rabbitmq_is_in_its_path(tmp_path: Path, program: str, version: str) -> None:
    assert rabbitmq_version(tmp_path / program) == version


def test_docker_is_not_asked_where_something_nearer_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask() -> bool:
        raise AssertionError("Docker was asked")

    monkeypatch.setattr(docker, "answers", ask)
    monkeypatch.setattr(binaries, "find_postgres", lambda: None)
    monkeypatch.setattr(binaries, "find_rabbitmq", lambda: Path("rabbitmq-server"))
    assert observe(POSTGRES, {"OUTBOX_POSTGRES_URL": "postgresql://db"}).url == "postgresql://db"
    assert observe(RABBITMQ, {}).program == Path("rabbitmq-server")

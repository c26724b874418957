"""A stand-in for the Docker client, because the machines that run these tests need not have an engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from outbox_cli.local import LocalServiceError, docker
from outbox_cli.local.container import PostgresContainer, RabbitMQContainer
from outbox_cli.local.runfolder import RunFolder, read


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A `docker` that says its version and writes down how it was called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    docker.answers.cache_clear()
    yield install(
        folder / "docker", f'echo "$@" >>{tmp_path}/calls; cat "{tmp_path}/said" 2>/dev/null || true'
    )
    docker.answers.cache_clear()


def install(program: Path, script: str) -> Path:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("script", "answers"),
    [
        ("echo 27.1", True),
        ("echo; echo Cannot connect to the Docker daemon >&2; exit 1", False),
        ("exit 0", False),
        ("exec sleep 60", False),
    ],
    ids=["an engine", "a client without an engine", "no version", "an engine that hangs"],
)
def test_an_engine_is_there_when_it_says_its_version(
    client: Path, monkeypatch: pytest.MonkeyPatch, script: str, answers: bool
) -> None:
    monkeypatch.setattr(docker, "_ASK_SECONDS", 1.0)
    install(client, script)
    assert docker.answers() is answers


@pytest.mark.parametrize("kind", [PostgresContainer, RabbitMQContainer])
def test_a_container_gets_its_password_from_a_file(
    client: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[PostgresContainer]
) -> None:
    monkeypatch.setattr(kind, "is_ready", lambda _: True)
    run = RunFolder.create(tmp_path)
    container = kind(run)
    container.boot()
    calls = (tmp_path / "calls").read_text()
    assert container.password in container.url
    assert container.password not in calls
    assert "--publish=127.0.0.1:" in calls
    record = read(run.path)
    assert record is not None
    assert record.containers == (container.name,)
    run.remove()
    assert f"rm --force --volumes {container.name}" in (tmp_path / "calls").read_text()


def test_a_container_that_dies_is_reported_with_its_log(client: Path, tmp_path: Path) -> None:
    container = PostgresContainer(RunFolder.create(tmp_path))
    (tmp_path / "said").write_text(f"no space left, {container.password}\n")
    with pytest.raises(LocalServiceError, match="did not start; .*\n.*no space left, ") as caught:
        container.boot()
    assert container.password not in str(caught.value)

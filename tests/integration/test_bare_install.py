"""`pip install outbox-operator` and nothing else is enough to emit through the driver an application has."""

import importlib.metadata
import json
import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import asyncpg
import pytest

from outbox import schema

REPOSITORY = Path(__file__).parents[2]
APPLICATION = """
import asyncio, importlib.metadata, json, os, sys
import asyncpg
import outbox

async def main():
    connection = await asyncpg.connect(os.environ["URL"])
    async with connection.transaction():
        message_id = await outbox.Emitter().emit(connection, "user.created", {"id": 123})
    await connection.close()
    needs = importlib.metadata.requires("outbox-operator")
    print(json.dumps({
        "message_id": str(message_id),
        "installed": sorted(found.name for found in importlib.metadata.distributions()),
        "requires": [need for need in needs if "extra ==" not in need],
        "outbox": outbox.__file__,
    }))

asyncio.run(main())
"""


@pytest.fixture
def fresh_python(tmp_path: Path) -> Path:
    """The Python of a new virtual environment that holds the built wheel, asyncpg, and nothing else."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=REPOSITORY, check=True, capture_output=True)
    [wheel] = tmp_path.glob("outbox_operator-*.whl")
    venv.create(tmp_path / "venv", with_pip=False)
    python = tmp_path / "venv" / "bin" / "python"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--no-index",
        "--quiet",
        str(wheel),
    ]
    subprocess.run(install, check=True)
    _lend(importlib.metadata.distribution("asyncpg"), python)
    return python


def _lend(distribution: importlib.metadata.Distribution, python: Path) -> None:
    """Link an installed distribution into another environment, so that the test needs no network."""
    [target] = (python.parent.parent / "lib").glob("python*/site-packages")
    source = Path(sysconfig.get_path("platlib"))
    for folder in {file.parts[0] for file in distribution.files or ()}:
        (target / folder).symlink_to(source / folder)


async def test_a_bare_install_emits_through_asyncpg_with_nothing_else_installed(
    fresh_python: Path, postgres_url: str, tmp_path: Path
) -> None:
    connection = await asyncpg.connect(postgres_url)
    await connection.execute(schema.create_sql())
    environment = {**os.environ, "URL": postgres_url, "PYTHONPATH": ""}
    run = subprocess.run(  # noqa: ASYNC221 - nothing else runs in this loop meanwhile
        [fresh_python, "-c", APPLICATION],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    [row] = await connection.fetch("SELECT * FROM outbox_table")
    await connection.close()
    assert str(row["message_id"]) == told["message_id"]
    assert told["installed"] == ["asyncpg", "outbox-operator"]
    assert told["requires"] == []
    assert Path(told["outbox"]).is_relative_to(fresh_python.parent.parent)

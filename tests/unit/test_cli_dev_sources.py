from pathlib import Path

import pytest

from outbox_cli.dev.sources import Change, Sources, State, Watch
from outbox_cli.failures import CommandError

RELAY, CODE, OTHER = Path("relay.yaml"), Path("shop.py"), Path("notes.txt")


def state(**versions: int) -> State:
    paths = {"relay": RELAY, "code": CODE}
    return {paths[name]: (version, 0) for name, version in versions.items()}


def project(tmp_path: Path) -> Path:
    for name in (
        "relay.yaml",
        "more/listeners.yml",
        "shop/listeners.py",
        ".git/x.yaml",
        "venv/x.py",
        "x.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(name)
    return tmp_path


def test_manifests_and_code_are_looked_for_in_all_folders_but_those_of_tools(tmp_path: Path) -> None:
    folder = project(tmp_path)
    sources = Sources.of([folder], [])
    assert list(sources.texts().values()) == ["relay.yaml", "more/listeners.yml"]
    assert set(sources.state()) == {
        folder / "relay.yaml",
        folder / "more/listeners.yml",
        folder / "shop/listeners.py",
    }


def test_code_is_where_a_manifest_is_and_where_a_person_says(tmp_path: Path) -> None:
    folder = project(tmp_path)
    sources = Sources.of([folder / "relay.yaml"], [folder / "shop"])
    assert list(sources.texts()) == [folder / "relay.yaml"]
    assert sources.code == (folder / "shop", folder)


def test_a_path_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="nowhere does not exist; name a folder or a file that does"):
        Sources.of([tmp_path / "nowhere"], [])


def test_a_manifest_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xff")
    with pytest.raises(CommandError, match="a.yaml cannot be read"):
        Sources.of([tmp_path], []).texts()


def test_an_edit_is_told_once_when_it_is_complete() -> None:
    watch = Watch(state(relay=1, code=1))
    looks = [watch.look(state(relay=version, code=1)) for version in (1, 2, 3, 3, 3)]
    assert looks == [Change(), Change(), Change(), Change(manifests=True), Change()]


@pytest.mark.parametrize(
    ("after", "told"),
    [
        (state(relay=1, code=2), Change(code=True)),
        (state(relay=2, code=1), Change(manifests=True)),
        (state(relay=1), Change(code=True)),
        ({}, Change(manifests=True, code=True)),
        (state(relay=1, code=1), Change()),
    ],
)
def test_what_was_edited_made_or_removed_is_told_apart(after: State, told: Change) -> None:
    watch = Watch(state(relay=1, code=1))
    watch.look(after)
    assert watch.look(after) == told

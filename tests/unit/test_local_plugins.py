from pathlib import Path

import pytest

from outbox_cli.local.plugins import closure, slim


@pytest.mark.parametrize(
    ("wanted", "needed"),
    [
        (["a"], {"a", "b", "c"}),
        (["c"], {"c"}),
        (["d"], {"d", "e"}),
        (["unknown"], set()),
        ([], set()),
    ],
)
def test_a_plugin_needs_what_it_builds_on(wanted: list[str], needed: set[str]) -> None:
    applications = {"a": ["kernel", "b"], "b": ["c", "stdlib"], "c": [], "d": ["e"], "e": ["d"]}
    assert closure(wanted, applications) == needed


def make_plugin(home: Path, name: str, applications: str) -> None:
    ebin = home / "plugins" / f"{name}-3.10.8" / "ebin"
    ebin.mkdir(parents=True)
    (ebin / f"{name}.app").write_text(f"{{application,{name},[{{applications,[{applications}]}}]}}.")


def test_an_installation_of_links_has_the_needed_plugins_only(tmp_path: Path) -> None:
    home = tmp_path / "rabbitmq_server-3.10.8"
    (home / "sbin").mkdir(parents=True)
    make_plugin(home, "rabbit", "kernel,stdlib,\n  ra")
    make_plugin(home, "ra", "kernel")
    make_plugin(home, "rabbitmq_prelaunch", "kernel")
    make_plugin(home, "rabbitmq_management", "rabbit")
    make_plugin(home, "rabbitmq_mqtt", "rabbit")
    sbin = slim(home / "sbin", tmp_path / "slim")
    assert sbin is not None
    assert sbin.resolve() == home / "sbin"
    assert {folder.name.partition("-")[0] for folder in (sbin.parent / "plugins").iterdir()} == {
        "rabbit",
        "ra",
        "rabbitmq_prelaunch",
        "rabbitmq_management",
    }


def test_an_installation_with_its_plugins_in_archives_is_used_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "home" / "plugins").mkdir(parents=True)
    (tmp_path / "home" / "plugins" / "rabbit-3.7.0.ez").touch()
    assert slim(tmp_path / "home" / "sbin", tmp_path / "slim") is None

from pathlib import Path

import pytest

from outbox_cli.local import LocalServiceError, apt


@pytest.fixture
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where policy-rc.d would be, and an `apt-get` that shows what it finds there."""
    path = tmp_path / "policy-rc.d"
    monkeypatch.setattr(apt, "_POLICY", path)
    monkeypatch.setattr(apt, "_TURN", tmp_path / "turn")
    program = tmp_path / "apt-get"
    program.write_text(
        f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\n{path}; echo "policy $?" >>{tmp_path}/calls\n'
        f"! grep -q broken {tmp_path}/calls || {{ echo E: Unable to locate package; exit 100; }}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return path


def test_packages_are_installed_without_starting_their_services(policy: Path) -> None:
    apt.install(["postgresql", "rabbitmq-server"])
    calls = (policy.parent / "calls").read_text()
    assert "update\npolicy 101\n" in calls
    assert "--no-install-recommends postgresql rabbitmq-server\npolicy 101\n" in calls
    assert not policy.exists()


def test_a_policy_of_the_machine_is_put_back(policy: Path) -> None:
    policy.write_text("#!/bin/sh\nexit 0\n")
    apt.install(["postgresql"])
    assert policy.read_text() == "#!/bin/sh\nexit 0\n"


def test_a_failure_says_what_apt_get_said(policy: Path) -> None:
    with pytest.raises(
        LocalServiceError, match="install .*broken failed with status 100.*\n(.*\n)*E: Unable"
    ):
        apt.install(["broken"])
    assert not policy.exists()

import subprocess
from pathlib import Path

import pytest

from outbox_cli.local import LocalServiceError, processes, runfolder
from outbox_cli.local.processes import Process
from outbox_cli.local.runfolder import Child, Record, RunFolder, read, sweep


def leave_behind(parent: Path, record: Record) -> Path:
    """What a killed run leaves: a folder with its record and some data."""
    path = parent / "run-dead"
    (path / "postgres" / "data").mkdir(parents=True)
    (path / "run.json").write_text(record.to_json())
    return path


def no_longer_alive() -> Process:
    child = subprocess.Popen(["sleep", "60"])
    found = processes.find(child.pid)
    child.kill()
    child.wait()
    assert found is not None
    return found


def test_a_record_survives_the_disk() -> None:
    record = Record(Process(1, 2), (Child(Process(3, 4), 9), Child(Process(5, None), 3)), ("box",))
    assert Record.from_json(record.to_json()) == record


def test_a_folder_whose_owner_lives_is_left_alone(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    sweep(lambda _: None, tmp_path)
    assert run.path.exists()


def test_a_folder_whose_owner_died_is_removed_with_its_processes(tmp_path: Path) -> None:
    recorded = subprocess.Popen(["sleep", "60"])
    process = processes.find(recorded.pid)
    assert process is not None
    path = leave_behind(tmp_path, Record(no_longer_alive(), (Child(process, 15),)))
    unrecorded = subprocess.Popen(["sleep", "60"], cwd=path / "postgres", start_new_session=True)
    lines: list[str] = []
    sweep(lines.append, tmp_path)
    assert recorded.wait(10) == -15
    assert unrecorded.wait(10) == -9
    assert not path.exists()
    assert [line.startswith("cleaning up after a run that was killed") for line in lines] == [True]


def test_a_stranger_with_a_recorded_pid_is_not_killed(tmp_path: Path) -> None:
    stranger = subprocess.Popen(["sleep", "60"])
    process = processes.find(stranger.pid)
    assert process is not None
    assert process.started is not None
    earlier = Process(process.pid, process.started - 1)
    path = leave_behind(tmp_path, Record(no_longer_alive(), (Child(earlier, 9),)))
    sweep(lambda _: None, tmp_path)
    assert not path.exists()
    assert stranger.poll() is None
    stranger.kill()
    stranger.wait()


@pytest.mark.parametrize("text", [None, "", "{}", "[]", '{"owner": 1, "children": [], "containers": []}'])
def test_a_folder_without_a_record_is_left_alone(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "run-new"
    path.mkdir()
    if text is not None:
        (path / "run.json").write_text(text)
    assert read(path) is None
    sweep(lambda _: None, tmp_path)
    assert path.exists()


def test_children_and_containers_are_written_down(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    run.add_child(processes.current(), 9)
    run.add_container("box")
    assert read(run.path) == Record(processes.current(), (Child(processes.current(), 9),), ("box",))


def test_a_secret_is_for_the_servers_account_only(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    secret = run.secret_file(run.subfolder("postgres") / "password", "secret")
    assert secret.stat().st_mode & 0o777 == 0o600
    assert secret.parent.stat().st_mode & 0o777 == 0o700
    assert secret.stat().st_uid == secret.parent.stat().st_uid


def test_a_folder_that_others_may_write_to_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runfolder, "_temporary", lambda: tmp_path)
    runfolder.parent_folder().chmod(0o777)
    with pytest.raises(LocalServiceError, match="others may write to it; remove it or set TMPDIR"):
        runfolder.parent_folder()


def test_a_kept_folder_outlives_its_run_with_its_passwords(tmp_path: Path) -> None:
    run = RunFolder.keep(tmp_path / "kept")
    server = run.subfolder("postgres")
    password = run.password(server)
    (server / "data").write_text("42")
    run.remove()
    again = RunFolder.keep(tmp_path / "kept")
    assert again.password(again.subfolder("postgres")) == password
    assert (server / "data").read_text() == "42"
    assert (server / "kept-password").stat().st_mode & 0o777 == 0o600


def test_a_password_is_written_down_where_it_is_needed_again_and_only_there(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    server = run.subfolder("postgres")
    assert run.password(server) != run.password(server)
    assert list(server.iterdir()) == []


def test_a_kept_folder_is_for_one_at_a_time(tmp_path: Path) -> None:
    RunFolder.keep(tmp_path / "kept")
    with pytest.raises(LocalServiceError, match="is in use by process"):
        RunFolder.keep(tmp_path / "kept")


@pytest.mark.parametrize("by_sweeping", [True, False])
def test_what_a_killed_run_left_in_a_kept_folder_is_ended_and_its_data_stays(
    tmp_path: Path, by_sweeping: bool
) -> None:
    recorded = subprocess.Popen(["sleep", "60"])
    process = processes.find(recorded.pid)
    assert process is not None
    record = Record(no_longer_alive(), (Child(process, 15),), is_kept=True)
    path = leave_behind(tmp_path, record)
    if by_sweeping:
        sweep(lambda _: None, tmp_path)
    else:
        RunFolder.keep(path)
    assert recorded.wait(10) == -15
    assert (path / "postgres" / "data").exists()

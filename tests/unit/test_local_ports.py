import socket

import pytest

from outbox_cli.local import ports


def test_ports_are_distinct_and_free() -> None:
    chosen = ports.free_ports(4)
    assert len(set(chosen)) == 4
    for port in chosen:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", port))


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        monkeypatch.setattr(ports, "_below_ephemeral", lambda: (port, port + 1))
        with pytest.raises(OSError, match="no 1 free ports"):
            ports.free_ports(1)

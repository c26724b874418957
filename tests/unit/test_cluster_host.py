"""What a local node needs of its machine, and what is said where that is missing."""

import os
import sys

import pytest

from outbox_cli.local.errors import LocalServiceError
from tests.cluster.host import find_host


def _nothing(line: str) -> None:
    """Progress that nobody has to see."""


def test_whoever_is_not_root_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(
        LocalServiceError, match=r"^a local Kubernetes node needs root: run this with sudo; or"
    ):
        find_host(_nothing)


def test_whoever_has_no_linux_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(LocalServiceError, match=r"^a local Kubernetes node needs Linux, this is darwin; "):
        find_host(_nothing)

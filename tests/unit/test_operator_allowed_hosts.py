"""Which hosts resources may name, by an administrator's list."""

import socket
from typing import Any

import pytest

from outbox_core.environment import SettingError
from outbox_operator.allowed_hosts import AllowedHosts, AllowedResolver

LISTED = AllowedHosts.parse(("rabbit.example", "*.shop.svc", "10.0.0.0/8", "127.0.0.1", "fd00::/8"))


@pytest.mark.parametrize(
    "host",
    ["rabbit.example", "RABBIT.example.", "db.shop.svc", "10.1.2.3", "127.0.0.1", "fd00::1", "localhost"],
)
async def test_a_host_that_is_listed_by_name_or_address_may_be_named(host: str) -> None:
    assert await LISTED.refused([host]) is None


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "::ffff:169.254.169.254",
        "other.example",
        "rabbit.example.evil.example",
        "evilshop.svc",
        "db.shop.svc.evil.example",
        "no-such-host.invalid",
        "2130706434",
        "a..b",
        "",
    ],
)
async def test_any_other_host_is_refused(host: str) -> None:
    assert await LISTED.refused(["rabbit.example", host]) == host


async def test_without_a_list_any_host_may_be_named() -> None:
    assert await AllowedHosts().refused(["169.254.169.254", "a..b"]) is None


@pytest.mark.parametrize("entry", ["", "*", "*.", "http://a", "10.0.0.0/99", "a b", "a:1"])
def test_an_entry_that_means_nothing_is_refused(entry: str) -> None:
    with pytest.raises(SettingError, match="allowed_hosts"):
        AllowedHosts.parse([entry])


async def test_a_name_that_leads_elsewhere_by_the_time_of_the_connection_leads_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allowed = AllowedHosts.parse(["127.0.0.1"])
    assert await allowed.refused(["localhost"]) is None
    resolver = AllowedResolver(allowed)

    async def rebound(*_: Any) -> list[dict[str, object]]:
        return [{"host": "169.254.169.254"}]

    monkeypatch.setattr(resolver._resolver, "resolve", rebound)
    with pytest.raises(OSError, match="not among the hosts"):
        await resolver.resolve("localhost", 80, socket.AF_INET)

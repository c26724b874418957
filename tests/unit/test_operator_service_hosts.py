"""Hosts that a Secret names, as the operator reaches them."""

import pytest

from outbox_operator.service_hosts import seen_from_elsewhere


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://rabbit:15672", "http://rabbit.shop.svc:15672"),
        ("https://rabbit", "https://rabbit.shop.svc"),
        ("http://rabbit:15672/below", "http://rabbit.shop.svc:15672/below"),
        ("postgresql://app:p%40ss@db:5432/shop?a=b", "postgresql://app:p%40ss@db.shop.svc:5432/shop?a=b"),
        (
            "postgresql://app@one:1,two:2,three.else/x",
            "postgresql://app@one.shop.svc:1,two.shop.svc:2,three.else/x",
        ),
        ("http://a:1,[fd00::1]:2,b/x", "http://a.shop.svc:1,[fd00::1]:2,b.shop.svc/x"),
    ],
)
def test_a_name_of_one_word_is_a_service_in_the_resources_namespace(url: str, expected: str) -> None:
    assert seen_from_elsewhere(url, "shop") == expected


@pytest.mark.parametrize(
    "host",
    [
        "rabbit.mq",
        "rabbit.mq.svc",
        "db.example.com",
        "db.",
        "localhost",
        "127.0.0.1",
        "[fd00::1]",
        "%2Frun%2Fpg",
    ],
)
def test_any_other_host_is_left_as_it_is(host: str) -> None:
    assert seen_from_elsewhere(f"http://{host}:15672/x", "shop") == f"http://{host}:15672/x"


def test_a_url_without_a_host_is_left_as_it_is() -> None:
    assert seen_from_elsewhere("postgresql:///shop?host=/run/pg", "shop") == "postgresql:///shop?host=/run/pg"

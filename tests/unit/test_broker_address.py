"""A broker's address: what a URL means, and that nobody sees the password."""

import pytest

from outbox_core.broker_address import BrokerAddress, broker_urls


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("amqp://u:p@rabbit:5673/shop", BrokerAddress("rabbit", 5673, "shop", "u")),
        ("amqp://u:p@rabbit", BrokerAddress("rabbit", 5672, "/", "u")),
        ("amqp://u:p@rabbit/", BrokerAddress("rabbit", 5672, "/", "u")),
        ("amqp://u:p@rabbit/%2F", BrokerAddress("rabbit", 5672, "/", "u")),
        ("amqp://u:p@rabbit/a%2Fb%20c", BrokerAddress("rabbit", 5672, "a/b c", "u")),
        ("amqps://rabbit/?heartbeat=30", BrokerAddress("rabbit", 5671, "/", "guest")),
        ("amqp://u%40x:p%2Fq@[::1]:1/v", BrokerAddress("::1", 1, "v", "u@x")),
    ],
)
def test_a_url_has_the_usual_defaults_and_percent_encoding(url: str, address: BrokerAddress) -> None:
    assert BrokerAddress.parse(url) == address


def test_an_address_is_shown_without_the_password() -> None:
    shown = str(BrokerAddress.parse("amqp://u:hidden@[::1]:1/v"))
    assert shown == 'broker [::1]:1, vhost "v", user "u"'


@pytest.mark.parametrize(
    "url",
    [
        "",
        "rabbit:5672",
        "http://u:hidden@rabbit",
        "amqp://u:hidden#@rabbit",
        "amqp://u:hidden/x@rabbit",
        "amqp://u:p@rabbit:hidden",
        "amqp://u:hidden@[rabbit",
        "amqp://u:hidden@a,b",
    ],
)
def test_a_malformed_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="the broker's URL is malformed") as caught:
        BrokerAddress.parse(url)

    assert "hidden" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("url", "urls"),
    [
        ("amqp://u:p@a", ["amqp://u:p@a"]),
        ("amqp://u:p@a:5673/shop?heartbeat=5", ["amqp://u:p@a:5673/shop?heartbeat=5"]),
        ("amqp://a,b", ["amqp://a", "amqp://b"]),
        (
            "amqp://u:p@a,b:5673,c/shop?heartbeat=5",
            [
                "amqp://u:p@a/shop?heartbeat=5",
                "amqp://u:p@b:5673/shop?heartbeat=5",
                "amqp://u:p@c/shop?heartbeat=5",
            ],
        ),
        ("amqps://u:p@a,a:5672?x=,@", ["amqps://u:p@a?x=,@", "amqps://u:p@a:5672?x=,@"]),
        (
            "amqp://u:p@[::1],[::2]:1,a/%2Cv",
            ["amqp://u:p@[::1]/%2Cv", "amqp://u:p@[::2]:1/%2Cv", "amqp://u:p@a/%2Cv"],
        ),
        (
            "amqp://u%2C%40:p%40%2C%2F@a,b/v",
            ["amqp://u%2C%40:p%40%2C%2F@a/v", "amqp://u%2C%40:p%40%2C%2F@b/v"],
        ),
        ("amqp://u,x:p@,q@a,b", ["amqp://u,x:p@,q@a", "amqp://u,x:p@,q@b"]),
    ],
)
def test_a_url_with_several_hosts_is_one_url_for_each(url: str, urls: list[str]) -> None:
    assert list(broker_urls(url)) == urls
    assert len({BrokerAddress.parse(each).host_port for each in urls}) == len(urls)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("amqp://u:hidden@a,", "is malformed"),
        ("amqp://u:hidden@,a", "is malformed"),
        ("amqp://u:hidden@a,,b", "is malformed"),
        ("amqp://u:hidden@", "is malformed"),
        ("amqp://u:hidden@a,:5672", "is malformed"),
        ("amqp://u:hidden@a:x,b", "is malformed"),
        ("amqp://u:hidden@a,b:70000", "is malformed"),
        ("amqp://u:hidden@a,[::1", "is malformed"),
        ("amqp://u:hidden/x@a,b", "is malformed"),
        ("http://u:hidden@a,b", "is malformed"),
        ("a,b", "is malformed"),
        ("amqp://u:hidden@a,b,a", "lists a host twice"),
        ("amqp://u:hidden@a:5672,A", "lists a host twice"),
        ("amqps://u:hidden@a:5671,a", "lists a host twice"),
    ],
)
def test_a_malformed_list_of_hosts_is_refused_without_repeating_it(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as caught:
        broker_urls(url)

    assert "hidden" not in str(caught.value)

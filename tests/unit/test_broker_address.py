"""A broker's address: what a URL means, and that nobody sees the password."""

import pytest

from outbox_core.broker_address import BrokerAddress


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
    ],
)
def test_a_malformed_url_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(ValueError, match="the broker's URL is malformed") as caught:
        BrokerAddress.parse(url)

    assert "hidden" not in str(caught.value)
    assert caught.value.__suppress_context__

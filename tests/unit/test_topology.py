"""The topology: a table of examples, what is refused, and what holds for all of them."""

from datetime import timedelta
from enum import Enum
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outbox.listener import listen
from outbox.retry import Delays, NoRetry
from outbox.topology import (
    DEAD_LETTER_DELIVERY_LIMIT,
    DELIVERY_LIMIT,
    Binding,
    Exchange,
    Subscription,
    Topology,
    TopologyError,
    dead_letter_queue,
    subscription,
    tier_name,
    topology,
)


def delays(*values: float) -> tuple[timedelta, ...]:
    return tuple(timedelta(seconds=value) for value in values)


class Name(str, Enum):  # noqa: UP042 -- a StrEnum is written as its value anyway
    EXCHANGE = "outbox"
    QUEUE = "shop.mail"
    KEY = "user.created"


def test_an_enum_member_that_is_a_str_names_its_value() -> None:
    listener = listen(Name.KEY, queue=Name.QUEUE, retry_delays=(1,))(print_body)
    assert (f"{listener.queue}", f"{listener.binding_key}") == ("shop.mail", "user.created")
    plain = topology("outbox", [Subscription("shop.mail", ("user.created",), delays(1))])
    given = topology(Name.EXCHANGE, [Subscription(Name.QUEUE, (Name.KEY,), delays(1))])
    assert repr(given) == repr(plain)
    assert dead_letter_queue(Name.QUEUE) == "shop.mail.dlq"
    assert tier_name(Name.EXCHANGE, timedelta(seconds=1)) == "outbox.delay_1s"


def print_body(body: object) -> None: ...


def test_one_listener_in_full() -> None:
    made = topology("outbox", [Subscription("shop.mail", ("user.created",), delays(1, 0.25))])
    assert made.exchanges == (
        Exchange("outbox", "topic"),
        Exchange("outbox.dlx", "direct"),
        Exchange("outbox.delay_250ms", "fanout"),
        Exchange("outbox.delay_1s", "fanout"),
    )
    tier = {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "",
        "x-dead-letter-strategy": "at-least-once",
        "x-overflow": "reject-publish",
    }
    assert {queue.name: queue.arguments for queue in made.queues} == {
        "shop.mail": {
            "x-queue-type": "quorum",
            "x-dead-letter-exchange": "outbox.dlx",
            "x-dead-letter-routing-key": "shop.mail",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-delivery-limit": DELIVERY_LIMIT,
        },
        "shop.mail.dlq": {"x-queue-type": "quorum", "x-delivery-limit": DEAD_LETTER_DELIVERY_LIMIT},
        "outbox.delay_250ms": tier | {"x-message-ttl": 250},
        "outbox.delay_1s": tier | {"x-message-ttl": 1000},
    }
    assert made.bindings == (
        Binding("outbox.dlx", "shop.mail.dlq", "shop.mail"),
        Binding("outbox.delay_250ms", "outbox.delay_250ms", ""),
        Binding("outbox.delay_1s", "outbox.delay_1s", ""),
        Binding("outbox", "shop.mail", "user.created"),
    )


@pytest.mark.parametrize(
    ("delay", "name"),
    [
        (1, "x.delay_1s"),
        (300, "x.delay_300s"),
        (86400, "x.delay_86400s"),
        (0.001, "x.delay_1ms"),
        (0.5, "x.delay_500ms"),
        (1.5, "x.delay_1500ms"),
    ],
)
def test_a_tier_is_named_in_seconds_where_they_are_whole(delay: float, name: str) -> None:
    assert tier_name("x", timedelta(seconds=delay)) == name


def test_without_listeners_there_are_only_the_exchanges() -> None:
    assert topology("x", []) == Topology((Exchange("x", "topic"), Exchange("x.dlx", "direct")), (), ())


def test_the_same_queue_with_equal_delays_is_one_queue_with_all_bindings() -> None:
    one = topology("x", [Subscription("q", ("a", "b"), delays(1))])
    two = topology("x", [Subscription("q", ("b",), delays(1)), Subscription("q", ("a",), delays(1))])
    assert one == two


def test_tiers_are_shared_by_every_listener_of_the_exchange() -> None:
    made = topology(
        "x", [Subscription("p", ("a",), delays(1, 10)), Subscription("q", ("a",), delays(10, 60))]
    )
    assert [e.name for e in made.exchanges if e.kind == "fanout"] == [
        "x.delay_1s",
        "x.delay_10s",
        "x.delay_60s",
    ]


def test_a_topology_can_be_compared_and_put_into_a_set() -> None:
    needs = [Subscription("q", ("a",), delays(1))]
    assert {topology("x", needs), topology("x", needs)} == {topology("x", needs)}


def test_a_listener_becomes_a_subscription_with_its_own_delays_or_the_default() -> None:
    @listen("user.created", queue="own", retry_delays=(1, 1, 2))
    def own(user: object) -> None: ...

    @listen("user.*", queue="default")
    def default(user: object) -> None: ...

    policy = Delays((10,), jitter=0.5)
    assert subscription(own, policy) == Subscription("own", ("user.created",), delays(1, 1, 2))
    assert subscription(default, policy) == Subscription("default", ("user.*",), delays(5, 10, 15))
    assert subscription(default, NoRetry()) == Subscription("default", ("user.*",), ())


def test_an_ordered_queue_has_one_active_consumer_and_needs_no_tiers() -> None:
    plain = topology("x", [Subscription("q", ("a",), delays(1))])
    made = topology("x", [Subscription("q", ("a",), delays(1), ordered=True)])
    arguments = {queue.name: queue.arguments for queue in made.queues}
    (expected,) = (queue.arguments for queue in plain.queues if queue.name == "q")
    assert arguments["q"] == expected | {"x-single-active-consumer": True}
    assert arguments["q"]["x-single-active-consumer"] is True
    assert set(arguments) == {"q", "q.dlq"}
    assert [exchange.name for exchange in made.exchanges] == ["x", "x.dlx"]
    assert "x-single-active-consumer" not in expected


def test_an_ordered_listener_leaves_the_tiers_of_others_alone() -> None:
    made = topology(
        "x",
        [Subscription("p", ("a",), delays(1, 10), ordered=True), Subscription("q", ("a",), delays(10, 60))],
    )
    assert [e.name for e in made.exchanges if e.kind == "fanout"] == ["x.delay_10s", "x.delay_60s"]


def test_an_ordered_listener_becomes_an_ordered_subscription() -> None:
    @listen("user.created", queue="own", retry_delays=(1, 2), ordered=True)
    def own(user: object) -> None: ...

    assert subscription(own, NoRetry()) == Subscription("own", ("user.created",), delays(1, 2), ordered=True)


def test_limits_are_arguments_of_the_listeners_queue_alone() -> None:
    plain = topology("x", [Subscription("q", ("a",), delays(1))])
    made = topology(
        "x", [Subscription("q", ("a",), delays(1), max_length=7, max_bytes=2**40, delivery_limit=3)]
    )
    arguments = {queue.name: queue.arguments for queue in made.queues}
    expected = {queue.name: queue.arguments for queue in plain.queues}
    given = {"x-max-length": 7, "x-max-length-bytes": 2**40, "x-delivery-limit": 3}
    assert arguments == expected | {"q": expected["q"] | given}


@pytest.mark.parametrize("name", ["max_length", "max_bytes"])
def test_a_limit_that_is_not_given_is_no_argument(name: str) -> None:
    made = topology("x", [Subscription("q", ("a",), (), **{name: 7})])  # type: ignore[arg-type]
    (arguments,) = (queue.arguments for queue in made.queues if queue.name == "q")
    assert len({"x-max-length", "x-max-length-bytes"} & set(arguments)) == 1
    assert arguments["x-delivery-limit"] == DELIVERY_LIMIT


LONG = "q" * 252


@pytest.mark.parametrize(
    ("exchange", "needs", "named"),
    [
        ("", [], ["exchange ''", "not empty"]),
        ("amq.topic", [], ["'amq.topic'", "belong to the broker"]),
        ("x" * 111, [], ["x" * 111, "delay tier", "128 bytes", "takes 127"]),
        ("shop*", [], ["exchange 'shop*'", "'*' cannot be in a name"]),
        ("x", [Subscription("", ("a",), ())], ["queue ''", "not empty"]),
        ("x", [Subscription("caf\u00e9", ("a",), ())], ["'café'", "'é' cannot be in a name"]),
        ("x", [Subscription("q\n", ("a",), ())], [r"'q\n'", "cannot be in a name"]),
        ("x", [Subscription("amq.q", ("a",), ())], ["'amq.q'", "belong to the broker"]),
        ("x", [Subscription(LONG, ("a",), ())], [LONG, "'.dlq'", "256 bytes"]),
        ("x", [Subscription("q", ("a", ""), ())], ["'q'", "binding key ''"]),
        ("x", [Subscription("q", ("é" * 128,), ())], ["'q'", "é" * 128, "256 bytes"]),
        ("x", [Subscription("q", (), ())], ["'q'", "()"]),
        ("x", [Subscription("q", "user.created", ())], ["'q'", "'user.created'"]),  # type: ignore[arg-type]
        ("x", [Subscription("q", ("a",), delays(0))], ["'q'", "timedelta(0)"]),
        ("x", [Subscription("q", ("a",), delays(100_000))], ["'q'", "24 hours"]),
        (
            "x",
            [Subscription("q", ("a",), delays(1, 10)), Subscription("q", ("b",), delays(1, 0.5))],
            ["'q'", "(1, 10) s for 'a'", "(1, 0.5) s for 'b'"],
        ),
        (
            "x",
            [Subscription("q", ("a",), delays(1)), Subscription("q", ("a",), delays(1, 1))],
            ["'q'", "(1) s for 'a'", "(1, 1) s for 'a'"],
        ),
        ("x", [Subscription("q", ("a",), (), max_length=0)], ["'q'", "max_length=0", "from 1 to"]),
        ("x", [Subscription("q", ("a",), (), max_length=True)], ["'q'", "max_length=True"]),
        ("x", [Subscription("q", ("a",), (), max_bytes=2**53 + 1)], ["'q'", "max_bytes=", str(2**53)]),
        ("x", [Subscription("q", ("a",), (), delivery_limit=-1)], ["'q'", "delivery_limit=-1", "1000000"]),
        (
            "x",
            [Subscription("q", ("a",), (), delivery_limit=None)],  # type: ignore[arg-type]
            ["'q'", "delivery_limit=None"],
        ),
        (
            "x",
            [Subscription("q", ("a",), (), max_length=5), Subscription("q", ("b",), ())],
            ["'q'", "max_length=5", "max_length=None", "the same limits or queues of their own"],
        ),
        (
            "x",
            [Subscription("q", ("a",), (), delivery_limit=5), Subscription("q", ("b",), ())],
            ["'q'", "delivery_limit=5", "delivery_limit=20"],
        ),
        (
            "x",
            [Subscription("q", ("a",), (), ordered=True), Subscription("q", ("b",), ())],
            ["'q'", "once ordered and once not"],
        ),
        (
            "x",
            [Subscription("q", ("a",), ()), Subscription("q.dlq", ("a",), ())],
            ["'q.dlq'", "dead-letter queue of 'q'"],
        ),
        ("x", [Subscription("x.delay_7s", ("a",), ())], ["'x.delay_7s'", "delay tier of exchange 'x'"]),
        ("x", [Subscription("x.delay_7ms", ("a",), ())], ["'x.delay_7ms'", "delay tier of exchange 'x'"]),
    ],
)
def test_what_cannot_be_declared_is_named(exchange: str, needs: list[Subscription], named: list[str]) -> None:
    with pytest.raises(TopologyError) as refused:
        topology(exchange, needs)
    assert [part for part in named if part not in str(refused.value)] == []


@pytest.mark.parametrize("queue", ["x.delay_7h", "x.delay_", "x.delay_7s.mine", "y.delay_7s", "x", "x.dlx"])
def test_a_name_that_only_resembles_a_tier_is_fine(queue: str) -> None:
    assert queue in {made.name for made in topology("x", [Subscription(queue, ("a",), ())]).queues}


def test_the_longest_names_that_fit_are_accepted() -> None:
    topology("x" * 110, [Subscription("q" * 251, ("k" * 255,), delays(86399.999))])


names = st.text("ab.", min_size=1, max_size=4) | st.text("aZ09-_.:@#,/+ ", min_size=1, max_size=260)
keys = st.text(min_size=1, max_size=260)
ladders = st.lists(st.integers(1, 86_400_000).map(lambda n: timedelta(milliseconds=n)), max_size=6).map(tuple)
subscriptions = st.builds(
    Subscription, names, st.lists(keys, min_size=1, max_size=4).map(tuple), ladders, st.booleans()
)
needs_of_all = st.lists(subscriptions, max_size=6)


def made_of(exchange: str, needs: list[Subscription]) -> Topology:
    """The topology, where there is one: what is refused is the business of the table above."""
    try:
        return topology(exchange, needs)
    except TopologyError:
        assume(False)
        raise


@given(names, needs_of_all)
def test_both_ends_of_every_binding_exist_once(exchange: str, needs: list[Subscription]) -> None:
    made = made_of(exchange, needs)
    exchanges = [e.name for e in made.exchanges]
    queues = [q.name for q in made.queues]
    assert len(set(exchanges)) == len(exchanges)
    assert len(set(queues)) == len(queues)
    assert len(set(made.bindings)) == len(made.bindings)
    assert {b.exchange for b in made.bindings} <= set(exchanges)
    assert {b.queue for b in made.bindings} == set(queues)


@given(names, needs_of_all, st.randoms())
def test_order_and_repetition_do_not_matter(exchange: str, needs: list[Subscription], random: Random) -> None:
    shuffled = needs * 2
    random.shuffle(shuffled)
    assert made_of(exchange, needs) == topology(exchange, shuffled)


@given(names, needs_of_all)
def test_every_queue_that_dead_letters_has_a_route_for_it(exchange: str, needs: list[Subscription]) -> None:
    made = made_of(exchange, needs)
    queues = {q.name: q.arguments for q in made.queues}
    for need in needs:
        arguments = queues[need.queue]
        target = dead_letter_queue(need.queue)
        route = (arguments["x-dead-letter-exchange"], target, arguments["x-dead-letter-routing-key"])
        assert Binding(*route) in made.bindings
        assert "x-dead-letter-exchange" not in queues[target]
        for delay in () if need.ordered else need.delays:
            tier = queues[tier_name(exchange, delay)]
            # Through the default exchange, by the message's key: the listener's queue, which exists.
            assert (tier["x-dead-letter-exchange"], tier.get("x-dead-letter-routing-key")) == ("", None)


@given(names, needs_of_all)
def test_no_dead_letter_is_lost_on_its_way(exchange: str, needs: list[Subscription]) -> None:
    for queue in made_of(exchange, needs).queues:
        assert queue.arguments["x-queue-type"] == "quorum"
        if "x-dead-letter-exchange" in queue.arguments:
            assert queue.arguments["x-dead-letter-strategy"] == "at-least-once"
            assert queue.arguments["x-overflow"] == "reject-publish"


@given(names, needs_of_all)
def test_every_name_fits_into_an_amqp_short_string(exchange: str, needs: list[Subscription]) -> None:
    made = made_of(exchange, needs)
    texts = [e.name for e in made.exchanges] + [q.name for q in made.queues]
    assert all(0 < len(text.encode()) <= 255 for text in texts)
    assert all(len(binding.routing_key.encode()) <= 255 for binding in made.bindings)


@given(names, needs_of_all)
def test_the_tiers_are_the_union_of_all_delays(exchange: str, needs: list[Subscription]) -> None:
    made = made_of(exchange, needs)
    ttls = sorted(q.arguments["x-message-ttl"] for q in made.queues if "x-message-ttl" in q.arguments)
    assert ttls == sorted(
        {delay // timedelta(milliseconds=1) for s in needs if not s.ordered for delay in s.delays}
    )
    assert len([e for e in made.exchanges if e.kind == "fanout"]) == len(ttls)


@given(names, needs_of_all)
def test_a_listener_more_takes_nothing_away(exchange: str, needs: list[Subscription]) -> None:
    made = made_of(exchange, needs)
    fewer = topology(exchange, needs[1:])
    assert set(fewer.queues) <= set(made.queues)
    assert set(fewer.exchanges) <= set(made.exchanges)
    assert set(fewer.bindings) <= set(made.bindings)

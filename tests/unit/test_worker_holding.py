from datetime import timedelta

import pytest

from outbox import Constant, Delays, Exponential, Listener, NoRetry, RetryPolicy, Worker
from outbox_worker import WorkerError
from outbox_worker.holding import HoldLimit, longest_retries, longest_wait_in_place

TIMED_OUT = (
    'queue "a": the channel to the broker is gone: PRECONDITION_FAILED - delivery acknowledgement on '
    "channel 1 timed out. Timeout value used: 5000 ms. This timeout value can be configured"
)


@pytest.mark.parametrize(
    ("limit", "most_returns"), [(1, 1), (2, 1), (3, 2), (4, 2), (6, 3), (20, 17), (1_000_000, 999_997)]
)
def test_some_returns_are_reserved_for_workers_that_die(limit: int, most_returns: int) -> None:
    hold_limit = HoldLimit(1800, limit)
    assert hold_limit.may_return(most_returns - 1)
    assert not hold_limit.may_return(most_returns)


def test_a_message_is_held_for_less_than_the_consumer_timeout() -> None:
    assert HoldLimit(1800, 20).seconds == 1440
    assert HoldLimit(None, 20).seconds == float("inf")


def test_a_shorter_consumer_timeout_is_learnt_from_what_the_broker_says() -> None:
    hold_limit = HoldLimit(1800, 20)
    assert hold_limit.learn("the connection was lost") is None
    assert hold_limit.seconds == 1440
    assert hold_limit.learn(TIMED_OUT) == 5
    assert hold_limit.seconds == 4
    assert hold_limit.learn(TIMED_OUT) is None
    assert HoldLimit(2, 20).learn(TIMED_OUT) is None


@pytest.mark.parametrize(
    ("policy", "seconds"),
    [
        (NoRetry(), 0),
        (Delays((1, 10, 60, 300)), 371),
        (Constant(60, retries=3, jitter=0.5), 270),
        (Exponential(1, multiplier=2, retries=3), 7),
    ],
)
def test_retries_take_as_long_as_their_longest_delays(policy: RetryPolicy, seconds: float) -> None:
    assert longest_retries(policy) == timedelta(seconds=seconds)


async def _handle(body: dict[str, object]) -> None:
    pass


def test_an_ordered_listener_may_wait_for_four_hours_by_default() -> None:
    assert longest_wait_in_place(1800, 20) == 4 * 3600
    Worker(
        rmq_connection_url="amqp://broker", listeners=[Listener("a", _handle, "q", (14_400,), ordered=True)]
    )


@pytest.mark.parametrize("delays", [(14_401,), (7_200, 7_201), (86_400,)])
def test_an_ordered_listener_that_would_wait_for_longer_is_refused(delays: tuple[float, ...]) -> None:
    listener = Listener("a", _handle, "q", delays, ordered=True)
    with pytest.raises(WorkerError, match=r"is ordered.*14400 s.*OUTBOX_CONSUMER_TIMEOUT"):
        Worker(rmq_connection_url="amqp://broker", listeners=[listener])
    Worker(rmq_connection_url="amqp://broker", listeners=[listener], consumer_timeout=None)
    Worker(rmq_connection_url="amqp://broker", listeners=[listener], consumer_timeout=86_400)


def test_a_listener_without_order_may_wait_in_its_tier_for_any_time() -> None:
    Worker(rmq_connection_url="amqp://broker", listeners=[Listener("a", _handle, "q", (86_400,))])


def test_a_lower_delivery_limit_shortens_the_wait() -> None:
    assert longest_wait_in_place(1800, 4) == 2880
    assert longest_wait_in_place(1800, 1) == 1440
    assert longest_wait_in_place(None, 1) == float("inf")

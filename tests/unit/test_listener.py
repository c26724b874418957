"""`@listen` and `Listener`: what they carry, and what they refuse when they are made."""

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from typing import assert_type

import pytest

from outbox.arguments import ListenerError
from outbox.listener import Listener, listen
from outbox.retry import Constant, Delays, Exponential, NoRetry


def on_user(user: dict[str, int], routing_key: str = "") -> int:
    """Count a user."""
    return user["id"]


async def on_user_async(user: object) -> str:
    return "done"


class Handler:
    def on_user(self, user: object) -> None: ...

    async def __call__(self, user: object) -> None: ...


def local() -> Callable[..., object]:
    def on_user(user: object) -> None: ...

    return on_user


def test_the_decorator_and_the_class_are_equivalent() -> None:
    listener = Listener("user.created", on_user, queue="q", retry_delays=(1, 2))
    assert listen("user.created", queue="q", retry_delays=(1, 2))(on_user) == listener
    assert (listener.binding_key, listener.callback, listener.queue) == ("user.created", on_user, "q")
    assert listener.retry_delays == (1, 2)


def test_the_decorator_passes_every_option_on() -> None:
    for option in ("exactly_once", "deduplicate", "ordered"):
        listener = Listener("k", on_user_async, **{option: True})  # type: ignore[arg-type]
        assert listen("k", **{option: True})(on_user_async) == listener  # type: ignore[arg-type]
        assert getattr(listener, option) is True
        assert listener != Listener("k", on_user_async)
    plain = Listener("k", on_user_async)
    assert (plain.exactly_once, plain.deduplicate, plain.ordered) == (False, False, False)


def test_options_can_be_combined_where_one_does_not_include_the_other() -> None:
    Listener("k", on_user_async, exactly_once=True, ordered=True, retry_delays=Constant(1, jitter=0.5))
    Listener("k", on_user, deduplicate=True, ordered=True)


def test_an_exactly_once_listener_is_given_its_transaction() -> None:
    assert listen("k", exactly_once=True)(with_connection).arguments.context == ("connection",)
    assert listen("k", exactly_once=True)(with_session).arguments.context == ("session",)
    assert listen("k", exactly_once=True)(on_user_async).arguments.context == ()


def test_a_listener_is_called_like_its_function_and_keeps_its_type() -> None:
    listener = listen("user.created")(on_user)
    assert_type(listener({"id": 7}, routing_key="k"), int)
    assert listener({"id": 7}) == 7


async def test_an_async_listener_is_awaited_like_its_function() -> None:
    listener = listen("user.created")(on_user_async)
    assert_type(await listener(None), str)
    assert await listener(None) == "done"


def test_a_listener_looks_like_its_function() -> None:
    listener = listen("user.created")(on_user)
    assert (listener.__name__, listener.__doc__, listener.__module__) == (  # type: ignore[attr-defined]
        "on_user",
        "Count a user.",
        __name__,
    )
    assert inspect.signature(listener) == inspect.signature(on_user)
    assert inspect.unwrap(listener) is on_user


@pytest.mark.parametrize(
    ("callback", "queue"),
    [
        (on_user, f"{__name__}.on_user"),
        (Handler().on_user, f"{__name__}.Handler.on_user"),
        (lambda user: user, f"{__name__}.lambda"),
        (local(), f"{__name__}.local.locals.on_user"),
    ],
)
def test_a_queue_is_named_after_module_and_function(callback: Callable[..., object], queue: str) -> None:
    assert Listener("k", callback).queue == queue


@pytest.mark.parametrize(
    ("callback", "is_async"),
    [
        (on_user, False),
        (on_user_async, True),
        (functools.partial(on_user_async), True),
        (Handler(), True),
        (Handler().on_user, False),
    ],
)
def test_it_knows_whether_its_callback_is_async(callback: Callable[..., object], is_async: bool) -> None:
    assert Listener("k", callback, queue="q").is_async is is_async


def test_a_policy_of_its_own_goes_before_the_default() -> None:
    default = Constant(60)
    assert Listener("k", on_user).policy(default) is default
    assert Listener("k", on_user, retry_delays=(1,)).policy(default) == Delays((1,))
    assert Listener("k", on_user, retry_delays=()).policy(default).delays() == ()
    assert Listener("k", on_user, retry_delays=NoRetry()).policy(default) == NoRetry()
    assert Listener("k", on_user, retry_delays=[timedelta(seconds=1)]).policy(default) == Delays((1,))


def test_listeners_can_be_compared_and_put_into_a_set() -> None:
    assert len({Listener("k", on_user, retry_delays=[1]), Listener("k", on_user, retry_delays=(1,))}) == 1
    assert Listener("k", on_user) != Listener("k", on_user, retry_delays=Exponential())


def generator(user: object) -> Iterator[object]:
    yield user


async def async_generator(user: object) -> AsyncIterator[object]:
    yield user


class Generating:
    def __call__(self, user: object) -> Iterator[object]:
        yield user


async def with_connection(user: object, connection: object) -> None: ...
async def with_session(user: object, session: object) -> None: ...
async def with_both(user: object, session: object, connection: object) -> None: ...
def two(user: object, order: object) -> None: ...
def none() -> None: ...


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Listener("", on_user), ["on_user", "binding key ''"]),
        (lambda: Listener(5, on_user), ["on_user", "binding key 5"]),  # type: ignore[arg-type]
        (lambda: Listener("k" * 256, on_user), ["on_user", "k" * 256, "256 bytes"]),
        (lambda: Listener("k", on_user, queue="q" * 252), ["on_user", "q" * 252, "'.dlq'", "256 bytes"]),
        (lambda: Listener("k", on_user, queue="amq.q"), ["on_user", "'amq.q'"]),
        (lambda: Listener("k", on_user, queue="shop:größe"), ["on_user", "'shop:größe'", "'ö'"]),
        (lambda: Listener("k", on_user, queue=5), ["on_user", "queue 5"]),  # type: ignore[arg-type]
        (lambda: Listener("k", on_user, retry_delays=(1, -1)), ["on_user", "(1, -1)", "delay -1"]),
        (lambda: Listener("k", on_user, retry_delays="1s"), ["on_user", "'1s'"]),  # type: ignore[arg-type]
        (lambda: Listener("k", on_user, retry_delays=5), ["on_user", "delays 5"]),  # type: ignore[arg-type]
        (lambda: Listener("k", two), ["two", "'user' and 'order'"]),
        (lambda: Listener("k", none), ["none", "no argument takes the body"]),
        (
            lambda: Listener("k", on_user_async, exactly_once=True, deduplicate=True),
            ["on_user_async", "exactly_once=True includes deduplicate=True"],
        ),
        (
            lambda: Listener("k", on_user, exactly_once=True),
            ["on_user", "`async def`", "deduplicate=True for the filter alone"],
        ),
        (
            lambda: Listener("k", with_both, exactly_once=True),
            ["with_both", "'connection' and 'session' would be two transactions", "keep the one"],
        ),
        (
            lambda: Listener("k", with_session),
            ["with_session", "'user' and 'session'", "connection and session take exactly_once=True"],
        ),
        (lambda: Listener("k", "on_user"), ["'on_user' is not callable"]),  # type: ignore[arg-type]
        (lambda: Listener("k", Handler), ["Handler is a class"]),
        (lambda: Listener("k", generator), ["generator", "has a yield"]),
        (lambda: Listener("k", async_generator), ["async_generator", "has a yield"]),
        (lambda: Listener("k", Generating(), "q"), ["Generating", "has a yield"]),
        (lambda: Listener("k", functools.partial(on_user)), ["partial of", "on_user", "give queue="]),
        (lambda: Listener("k", Handler()), ["instance of", "Handler", "give queue="]),
        (lambda: listen("other")(listen("user.created")(on_user)), ["on_user", "a listener already"]),
        (lambda: listen(on_user), ["on_user", "@listen('topic')"]),  # type: ignore[arg-type]
    ],
)
def test_a_mistake_is_said_when_the_listener_is_made(make: Callable[[], object], named: list[str]) -> None:
    with pytest.raises(ListenerError) as refused:
        make()
    assert [part for part in named if part not in str(refused.value)] == []


def test_an_error_says_where_the_function_is_written() -> None:
    with pytest.raises(ListenerError, match=rf"test_listener\.py:{inspect.getsourcelines(two)[1]}"):
        listen("user.created")(two)


def test_an_error_does_not_show_what_a_partial_has_bound() -> None:
    with pytest.raises(ListenerError) as refused:
        Listener("k", functools.partial(two, order="s3cret"))
    assert "s3cret" not in str(refused.value)

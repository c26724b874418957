"""Listeners: a function, the topics it is called for, its queue and its retries.

Only the declaration; a worker carries it out. Whatever is wrong with it is said where it is made, which for
`@listen` is when the module is imported.
"""

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Generic, ParamSpec, TypeVar

from outbox.arguments import Arguments, ListenerError, described
from outbox.retry import Duration, RetryPolicy, policy_of

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


@dataclass(frozen=True)
class Listener(Generic[P, R_co]):
    """A message handler. Calling it calls the callback, so that a test needs neither broker nor worker."""

    binding_key: str
    """The topic to listen to; `*` stands for one word, `#` for any number of them."""
    callback: Callable[P, R_co]
    """The function, async or not, that is called with each message."""
    queue: str = ""
    """The queue's name; where none is given `{module}.{qualname}` of the callback, without angle brackets."""
    retry_delays: RetryPolicy | Sequence[Duration] | None = None
    """The retries after a failure: seconds, timedeltas or a policy; None leaves it to the worker."""
    _: KW_ONLY
    exactly_once: bool = False
    """Whether each message has its effect once: the callback runs inside a transaction of the worker's
    database, which it gets as `connection` or `session`, and whatever it writes or emits through that commits
    together with a note of the message. A message that has its note is not handed to the callback again."""
    deduplicate: bool = False
    """Whether a message that was handled is not handed over again. The note is made after the callback has
    returned, and not together with what it did: one that dies in between is called again."""
    ordered: bool = False
    """Whether messages are handled one at a time, in the order of the queue, by one worker of all; one that
    fails holds up the rest until it succeeds or is dead-lettered."""
    arguments: Arguments = field(init=False, repr=False, compare=False)
    """How a delivery becomes the callback's arguments."""
    _policy: RetryPolicy | None = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_callback(self.callback)
        queue = self.queue or _queue_of(self.callback)
        try:
            _check_names(self.binding_key, queue)
            policy = None if self.retry_delays is None else policy_of(self.retry_delays)
        except (TypeError, ValueError) as error:
            raise ListenerError(f"{described(self.callback)}: {error}") from error
        arguments = Arguments.of(self.callback, exactly_once=self.exactly_once)
        # Not str(queue), which of a member of `class Queue(str, Enum)` is "Queue.NAME".
        binding_key, queue = str.__str__(self.binding_key), str.__str__(queue)
        self._set(binding_key=binding_key, queue=queue, arguments=arguments, _policy=policy)
        _check_exactly_once(self)
        if isinstance(self.retry_delays, Sequence):
            self._set(retry_delays=tuple(self.retry_delays))  # a list would make the listener unhashable
        self._resemble_callback()

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.callback(*args, **kwargs)

    @property
    def is_async(self) -> bool:
        """Whether the callback is awaited; otherwise it runs in a thread."""
        return _is(inspect.iscoroutinefunction, self.callback)

    def policy(self, default: RetryPolicy) -> RetryPolicy:
        """The policy to retry by, where `default` is the worker's."""
        return default if self._policy is None else self._policy

    def _set(self, **values: object) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _resemble_callback(self) -> None:
        """Take on the callback's name, text and signature, for `help()`, tracebacks and test reports."""
        for name in ("__module__", "__name__", "__qualname__", "__doc__"):
            if hasattr(self.callback, name):
                self._set(**{name: getattr(self.callback, name)})
        self._set(__wrapped__=self.callback)


class NotAwaitedError(Exception):
    """A listener that returned what it should have awaited or run, so that its work was never done."""


class HandlerCancelledError(Exception):
    """The listener was cancelled by something inside of it, and not from outside."""

    def __init__(self) -> None:
        super().__init__("the listener was cancelled from within")


class HandlerExitError(Exception):
    """The listener asked for the end of the process; the message failed instead."""

    def __init__(self, status: object) -> None:
        super().__init__(f"the listener called for an exit with status {status}")


def check_finished(
    callback: Callable[..., object], result: object, error: type[NotAwaitedError] = NotAwaitedError
) -> None:
    """Raise `error` if a callback has left its work undone: what it returned is a call that did not begin.

    A wrapper may hide from `Listener` what kind of function it calls.
    """
    if result is None:
        return
    match result:
        case Coroutine():
            result.close()
            cure = "write `async def` and await it, or run it to its end"
        case Generator() | AsyncGenerator():
            cure = "the function has a yield, so that calling it does not run it; use return"
        case Awaitable() if not _is(inspect.iscoroutinefunction, callback):
            cure = "write `async def` and await it, or wait for its end"
        case _:
            return
    raise error(f"{described(callback)} returned a {type(result).__name__} that nobody runs; {cure}")


def listen(
    binding_key: str,
    *,
    queue: str = "",
    retry_delays: RetryPolicy | Sequence[Duration] | None = None,
    exactly_once: bool = False,
    deduplicate: bool = False,
    ordered: bool = False,
) -> Callable[[Callable[P, R_co]], Listener[P, R_co]]:
    """Make a `Listener` of the function below: `@listen("user.created")`. The rest are its fields."""
    if callable(binding_key):
        raise ListenerError(f"{described(binding_key)}: write @listen('topic'), with the topic to listen to")

    def decorate(callback: Callable[P, R_co]) -> Listener[P, R_co]:
        return Listener(
            binding_key,
            callback,
            queue,
            retry_delays,
            exactly_once=exactly_once,
            deduplicate=deduplicate,
            ordered=ordered,
        )

    return decorate


def _check_callback(callback: object) -> None:
    if not callable(callback):
        raise ListenerError(
            f"callback {callback!r} is not callable; give the function that takes the message"
        )
    if isinstance(callback, Listener):
        raise ListenerError(
            f"{described(callback)} is a listener already; for another topic make a second one from its "
            "function: Listener('other.topic', listener.callback)"
        )
    if inspect.isclass(callback):
        raise ListenerError(f"{described(callback)} is a class; give a function or a bound method")
    if _is(inspect.isgeneratorfunction, callback) or _is(inspect.isasyncgenfunction, callback):
        raise ListenerError(f"{described(callback)} has a yield, so calling it would not run it; use return")


def _is(kind: Callable[[object], bool], callback: object) -> bool:
    """Whether a function is of a kind, or an object's `__call__` is."""
    return kind(callback) or kind(getattr(callback, "__call__", None))  # noqa: B004


def _check_exactly_once(listener: Listener[..., object]) -> None:
    if not listener.exactly_once:
        return
    if listener.deduplicate:
        raise ListenerError(
            f"{described(listener.callback)}: exactly_once=True includes deduplicate=True; remove the latter"
        )
    if not listener.is_async:
        raise ListenerError(
            f"{described(listener.callback)}: exactly_once=True takes an async function, as its transaction "
            "lives in the event loop; write `async def`, or deduplicate=True for the filter alone"
        )


def _check_names(binding_key: str, queue: str) -> None:
    from outbox.topology import check_binding_key, check_queue  # not for whoever only emits: it takes time

    check_binding_key(binding_key, queue)
    check_queue(queue)


def _queue_of(callback: Callable[..., object]) -> str:
    qualname = getattr(callback, "__qualname__", None)
    if qualname is None:
        raise ListenerError(f"{described(callback)} has no name to call its queue by; give queue='…'")
    # `<locals>` and `<lambda>` lose their brackets, which an AMQP name cannot have.
    return f"{callback.__module__}.{qualname}".replace("<", "").replace(">", "")

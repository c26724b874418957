"""Who gets a message: the listeners, as the queues that a broker would have for them."""

from collections.abc import Iterable

from outbox.listener import Listener
from outbox.retry import RetryPolicy
from outbox.testing.attempt import AnyListener
from outbox.testing.routing import matches
from outbox.topology import subscription, topology


class Queues:
    """The listeners by queue. What a worker would refuse to start with is refused here as well."""

    def __init__(self, listeners: Iterable[AnyListener], default: RetryPolicy) -> None:
        self._listeners: dict[str, list[AnyListener]] = {}
        for listener in listeners:
            _check(listener)
            self._listeners.setdefault(listener.queue, []).append(listener)
        for queue, sharing in self._listeners.items():
            _check_sharing(queue, sharing)
        everyone = (one for sharing in self._listeners.values() for one in sharing)
        topology("outbox", [subscription(listener, default) for listener in everyone])

    @property
    def are_async(self) -> bool:
        """Whether any listener has to be awaited."""
        return any(sharing[0].is_async for sharing in self._listeners.values())

    def bound_to(self, routing_key: str) -> list[AnyListener]:
        """A listener for each queue that gets this key; a queue gets it once, however many keys match."""
        return [
            sharing[0]
            for sharing in self._listeners.values()
            if any(matches(listener.binding_key, routing_key) for listener in sharing)
        ]


def _check(listener: object) -> None:
    if not isinstance(listener, Listener):
        raise TypeError(f"{listener!r} is not a listener: decorate it with @listen('topic')")
    _ = listener.arguments.decoder  # a ListenerError where no body could ever be decoded


def _check_sharing(queue: str, sharing: list[AnyListener]) -> None:
    # One function may have several topics. Of two functions each would get some of the other's messages.
    if len({(one.callback, one.exactly_once, one.deduplicate) for one in sharing}) > 1:
        keys = " and ".join(repr(listener.binding_key) for listener in sharing)
        raise ValueError(
            f"queue {queue!r} has different listeners, for {keys}; name one of them: @listen(…, queue='…')"
        )

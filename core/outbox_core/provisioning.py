"""Making a topology on the broker, and checking that one is there.

The broker closes a channel with each refusal: one serves until then, and another goes on.
"""

from collections.abc import Awaitable, Callable, Sequence

from aiormq.abc import AbstractChannel
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
)

from outbox.topology import Binding, Exchange, Queue, Topology
from outbox_core.broker_errors import (
    BrokerLostError,
    TopologyConflictError,
    TopologyMissingError,
    binding_subject,
    broker_words,
    lost_binding,
    lost_consumer,
)

_CALL_SECONDS = 10.0


class Provisioning:
    """Calls that concern a topology, one after the other, until it is closed."""

    def __init__(
        self,
        open_channel: Callable[[], Awaitable[AbstractChannel]],
        close_channel: Callable[[AbstractChannel], Awaitable[None]],
    ) -> None:
        self._open_channel = open_channel
        self._close_channel = close_channel
        self._channel: AbstractChannel | None = None

    async def aclose(self) -> None:
        """Let go of the channel."""
        if self._channel is not None:
            await self._close_channel(self._channel)

    async def declare(self, topology: Topology) -> None:
        """Make all that is not there; what the user may not make has to be there.

        A binding that the user may not make is taken to be there: AMQP has no way to look. So is an exchange
        or a queue on which the user has no right at all, which RabbitMQ shows to nobody from 4.3 on.
        """
        missing: list[str] = []
        for thing in _things(topology):
            try:
                await self._declare(thing, passive=False)
            except ChannelAccessRefused as refusal:
                if not await self._exists(thing):
                    missing.append(f"{_described(thing)} ({broker_words(refusal)})")
        if missing:
            raise TopologyMissingError(
                f"missing on the broker, and the user may not make them: {', '.join(missing)}; "
                "give the user the configure permission, or have somebody make them who has it"
            )
        for binding in topology.bindings:
            await self._bind(binding)

    async def check(self, topology: Topology) -> None:
        """Raise one error that names every exchange and queue that is known not to exist."""
        missing = [_described(thing) for thing in _things(topology) if not await self._exists(thing)]
        if missing:
            raise TopologyMissingError(
                f"missing on the broker: {', '.join(missing)}; declare them "
                "(the operator's resources or a self-declaring process do), or correct the names"
            )

    async def private_queue(self, name: str, exchange: str, binding_keys: Sequence[str], most: int) -> None:
        """See `Broker.private_queue`."""
        channel = await self._usable_channel()
        try:
            await channel.queue_declare(
                name,
                exclusive=True,
                auto_delete=True,
                # Nobody waits for whoever watches: what is not taken in time makes room for what follows.
                arguments={"x-max-length": most, "x-overflow": "drop-head"},
                timeout=_CALL_SECONDS,
            )
        except (AMQPError, RuntimeError, OSError) as error:
            raise lost_consumer(error, name) from None
        try:
            for key in binding_keys:
                await channel.queue_bind(name, exchange, key, timeout=_CALL_SECONDS)
        except (AMQPError, RuntimeError, OSError) as error:
            raise lost_binding(error, name, exchange) from None

    async def _exists(self, thing: Exchange | Queue) -> bool:
        """False if a thing is known to be missing; a refusal says nothing, and using it shows the rest."""
        try:
            await self._declare(thing, passive=True)
        except ChannelNotFoundEntity:
            return False
        except ChannelAccessRefused:
            return True
        return True

    async def _declare(self, thing: Exchange | Queue, *, passive: bool) -> None:
        channel = await self._usable_channel()
        try:
            match thing:
                case Exchange(name, kind):
                    await channel.exchange_declare(
                        name, exchange_type=kind, passive=passive, durable=True, timeout=_CALL_SECONDS
                    )
                case Queue(name):
                    await channel.queue_declare(
                        name, passive=passive, durable=True, arguments=thing.arguments, timeout=_CALL_SECONDS
                    )
        except (ChannelAccessRefused, ChannelNotFoundEntity):
            raise
        except ChannelPreconditionFailed as error:
            raise TopologyConflictError(
                f"{_described(thing)} exists as something else ({broker_words(error)}); "
                "delete it or choose another name"
            ) from None
        except (AMQPError, RuntimeError, OSError) as error:
            raise _failed(_described(thing), error) from None

    async def _bind(self, binding: Binding) -> None:
        channel = await self._usable_channel()
        try:
            await channel.queue_bind(
                binding.queue, binding.exchange, binding.routing_key, timeout=_CALL_SECONDS
            )
        except ChannelAccessRefused:
            return
        except (AMQPError, RuntimeError, OSError) as error:
            raise _failed(binding_subject(binding.queue, binding.exchange), error) from None

    async def _usable_channel(self) -> AbstractChannel:
        if self._channel is None or self._channel.is_closed:
            self._channel = await self._open_channel()
        return self._channel


def _things(topology: Topology) -> list[Exchange | Queue]:
    return [*topology.exchanges, *topology.queues]


def _described(thing: Exchange | Queue) -> str:
    return f'{"exchange" if isinstance(thing, Exchange) else "queue"} "{thing.name}"'


def _failed(subject: str, error: BaseException) -> BrokerLostError:
    return BrokerLostError(f"{subject}: the channel to the broker is gone: {broker_words(error)}")

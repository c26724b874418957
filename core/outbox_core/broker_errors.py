"""What goes wrong with a broker, each as one line that names the object and the cure, and no password."""

from aiormq.exceptions import ChannelAccessRefused, ChannelNotFoundEntity, ChannelPreconditionFailed


class BrokerError(Exception):
    """Anything below."""


class ConnectError(BrokerError):
    """No connection could be made. Trying again may help."""


class AuthenticationError(ConnectError):
    """The broker refuses the user, the password, or the user in this vhost."""


class VhostMissingError(ConnectError):
    """The vhost does not exist."""


class UnreachableError(ConnectError):
    """Nothing answers, or not as a broker that is ready would."""


class BrokerLostError(BrokerError):
    """The connection or the channel is gone, and with it the answers that were awaited on it."""


class PublishTimeoutError(BrokerLostError):
    """The broker has not answered in time; the channel is given up, since it still may."""


class ExchangeMissingError(BrokerLostError):
    """The exchange does not exist."""


class QueueMissingError(BrokerLostError):
    """The queue does not exist."""


class ConsumerCancelledError(BrokerLostError):
    """The broker has ended a consumer, as it does when the queue is deleted or its leader moves."""


class TopologyMissingError(BrokerLostError):
    """Exchanges or queues do not exist, and are not to be made by us."""


class TopologyConflictError(BrokerLostError):
    """An exchange or a queue exists as something else than was declared."""


class AccessRefusedError(BrokerLostError):
    """The user lacks a permission."""


class MessageRefusedError(BrokerLostError):
    """The broker closed the channel over one message of the batch: sent one by one, it is found."""


class MessageTooLargeError(MessageRefusedError):
    """That message is larger than the broker's `max_message_size`."""


def lost(cause: BaseException | None, exchange: str) -> BrokerLostError:
    """The error of what was under way with `exchange` when the channel closed because of `cause`."""
    text = broker_words(cause)
    match cause:
        case ChannelNotFoundEntity() if f"exchange '{exchange}'" in text:
            return exchange_missing(exchange)
        case ChannelPreconditionFailed() if "message size" in text:
            return MessageTooLargeError(
                f'exchange "{exchange}": {text}; send its messages one by one to find it, '
                "or raise max_message_size on the broker"
            )
        case ChannelPreconditionFailed():
            return MessageRefusedError(
                f'exchange "{exchange}": {text}; send its messages one by one to find the one meant'
            )
        case ChannelAccessRefused() if "access to topic" in text:
            return MessageRefusedError(
                f'exchange "{exchange}": {text}; give the user this topic permission, '
                "or send the messages one by one to find the one meant"
            )
        case ChannelAccessRefused():
            return AccessRefusedError(f'exchange "{exchange}": {text}; give the user this permission')
        case _:
            return BrokerLostError(f'exchange "{exchange}": the channel to the broker is gone: {text}')


def exchange_missing(exchange: str) -> ExchangeMissingError:
    """The error that names the exchange and who makes it."""
    return ExchangeMissingError(
        f'exchange "{exchange}" does not exist; declare it as a durable topic exchange '
        "(an OutboxRelay resource or a self-declaring relay does), or correct the name"
    )


def lost_consumer(cause: BaseException | None, queue: str) -> BrokerLostError:
    """The error of a consumer of `queue` whose channel closed because of `cause`."""
    text = broker_words(cause)
    match cause:
        case ChannelNotFoundEntity():
            return QueueMissingError(
                f'queue "{queue}" is not there ({text}); declare it '
                "(an OutboxListener resource or a self-declaring worker does), or correct the name"
            )
        case ChannelAccessRefused():
            return AccessRefusedError(f'queue "{queue}": {text}; give the user this permission')
        case _:
            return BrokerLostError(f'queue "{queue}": the channel to the broker is gone: {text}')


def lost_binding(cause: BaseException | None, queue: str, exchange: str) -> BrokerLostError:
    """The error of a binding that the broker did not make because of `cause`."""
    text = broker_words(cause)
    match cause:
        case ChannelNotFoundEntity() if f"exchange '{exchange}'" in text:
            return exchange_missing(exchange)
        case ChannelAccessRefused():
            return AccessRefusedError(
                f"{binding_subject(queue, exchange)}: {text}; give the user this permission"
            )
        case _:
            return BrokerLostError(
                f"{binding_subject(queue, exchange)}: the channel to the broker is gone: {text}"
            )


def binding_subject(queue: str, exchange: str) -> str:
    """What an error calls a binding."""
    return f'binding of queue "{queue}" to exchange "{exchange}"'


def consumer_cancelled(queue: str) -> ConsumerCancelledError:
    """The error that names the queue and why this happens."""
    return ConsumerCancelledError(
        f'queue "{queue}": the broker has ended the consumer: the queue was deleted, its leader is gone, '
        "or consumer_timeout was over; consume it again, and declare it where it is missing"
    )


def closed_by_us(queue: str) -> BrokerLostError:
    """The error of a consumer after its `aclose`."""
    return BrokerLostError(f'queue "{queue}": the consumer was closed by us')


def timed_out(exchange: str, count: int, timeout_seconds: float) -> str:
    """What is known, and what follows, where a batch was not answered in time."""
    return (
        f'exchange "{exchange}": the broker has not confirmed all of {count} messages within '
        f"{timeout_seconds:g} s; they may have arrived, and to send them again may duplicate them"
    )


def broker_words(cause: BaseException | None) -> str:
    """The broker's reply text, or the closest to it that the exception has."""
    if cause is None:
        return "closed"
    return next((str(word) for word in reversed(cause.args) if word), type(cause).__name__)

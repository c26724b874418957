"""What the fast path relies on in aiormq, pamqp and aio-pika beyond their documented API: does it hold?

`aiormq_internals` describes how it is used. Everything is looked up by name, in classes and in the compiled
code of their methods: without a connection or an event loop, and before anything of ours builds on it.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from types import CodeType
from typing import Any, Protocol

_CHANGED = (ImportError, AttributeError, TypeError, ValueError)
"""What is raised by looking up or trying out something that is not as it was."""


class Requirement(Protocol):
    """Something that has to be as it was when the fast path was written."""

    @property
    def name(self) -> str:
        """What a log calls it."""

    @property
    def holds(self) -> Callable[[], bool]:
        """Looks it up; may raise one of `_CHANGED` instead of returning False."""


@dataclass(frozen=True, slots=True)
class Exists:
    """A name that can be imported, or an attribute of a class."""

    module: str
    path: str

    @property
    def name(self) -> str:
        """See `Requirement.name`."""
        return f"{self.module}.{self.path}"

    def holds(self) -> bool:
        """See `Requirement.holds`."""
        find(self.module, self.path)
        return True


@dataclass(frozen=True, slots=True)
class Takes:
    """A function of this module that can be called with these arguments; a method's object is the first.

    One that is inherited is of another module, and may do nothing but raise.
    """

    module: str
    path: str
    arguments: int
    keywords: tuple[str, ...] = ()
    is_awaited: bool = True

    @property
    def name(self) -> str:
        """See `Requirement.name`."""
        given = ["_"] * self.arguments + [f"{keyword}=" for keyword in self.keywords]
        return f"{self.module}.{self.path}({', '.join(given)})"

    def holds(self) -> bool:
        """See `Requirement.holds`."""
        function = find(self.module, self.path)
        signature = inspect.signature(function)
        signature.bind(*[None] * self.arguments, **dict.fromkeys(self.keywords))
        return (
            function.__module__ == self.module
            # Not swallowed by a `**options`, which are passed on to others that do not know them.
            and signature.parameters.keys() >= set(self.keywords)
            and (inspect.iscoroutinefunction(function) or not self.is_awaited)
        )


@dataclass(frozen=True, slots=True)
class Uses:
    """A method whose code has a variable, or reads, calls or sets an attribute, of this name."""

    module: str
    path: str
    used: str

    @property
    def name(self) -> str:
        """See `Requirement.name`."""
        return f"{self.used} in {self.module}.{self.path}"

    def holds(self) -> bool:
        """See `Requirement.holds`."""
        code: CodeType = inspect.unwrap(find(self.module, self.path)).__code__
        return self.used in code.co_names or self.used in code.co_varnames


@dataclass(frozen=True, slots=True)
class Behaves:
    """Something that is tried out."""

    name: str
    holds: Callable[[], bool]


def find(module: str, path: str) -> Any:
    """What has this path of attributes in a module, and is not merely declared by an abstract class."""
    found: Any = import_module(module)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    if getattr(found, "__isabstractmethod__", False):
        raise AttributeError(f"{path} is abstract", name=path)
    return found


def unmet() -> list[str]:
    """The names of the requirements that do not hold in what is installed."""
    return [requirement.name for requirement in REQUIREMENTS if not _holds(requirement)]


def _holds(requirement: Requirement) -> bool:
    try:
        return requirement.holds()
    except _CHANGED:
        return False


def _payloads_are_kept() -> bool:
    frame = find(_ABC, "ChannelFrame")(payload=b"frames", should_close=False)
    return (frame.payload, frame.should_close, frame.should_drain) == (b"frames", False, False)


def _frames_are_read_back() -> bool:
    arguments = {"reply_code": 200, "reply_text": "abandoned", "class_id": 0, "method_id": 0}
    close = find(_COMMANDS, "Channel.Close")(**arguments)
    whole = find(_ABC, "ChannelFrame").marshall(7, [close]).payload
    size, number, frame = find("pamqp.frame", "unmarshal")(whole)
    return (size, number, frame.reply_text) == (len(whole), 7, "abandoned")


def _fields_have_their_names() -> bool:
    ack = find(_COMMANDS, "Basic.Ack")(3, True)
    nack = find(_COMMANDS, "Basic.Nack")(4, False)
    returned = find(_COMMANDS, "Basic.Return")(312, "NO_ROUTE", "outbox", "key")
    blocked = find(_COMMANDS, "Connection.Blocked")("low on disk")
    closed = find(_COMMANDS, "Connection.Close")(530, "refused", 0, 0)
    header = find("pamqp.header", "ContentHeader")(
        properties=find(_COMMANDS, "Basic.Properties")(message_id="m")
    )
    return (
        (ack.delivery_tag, ack.multiple) == (3, True)
        and (nack.delivery_tag, nack.multiple) == (4, False)
        and (returned.reply_code, returned.reply_text, returned.routing_key) == (312, "NO_ROUTE", "key")
        and (blocked.reason, closed.reply_text) == ("low on disk", "refused")
        and header.properties.message_id == "m"
    )


_ABC, _CONNECTION, _CHANNEL = "aiormq.abc", "aiormq.connection", "aiormq.channel"
_COMMANDS, _AIO_PIKA = "pamqp.commands", "aio_pika.abc"

REQUIREMENTS: tuple[Requirement, ...] = (
    # A connection that reads in bulk: made like aiormq's own, with a reader and a writer that are ours.
    Exists("aiormq", "Connection"),
    Takes(
        _CONNECTION, "Connection.__init__", 2, ("transport_factory", "client_properties"), is_awaited=False
    ),
    Takes(_CONNECTION, "Connection.connect", 1),
    Takes(_CONNECTION, "Connection.ready", 1),
    Takes(_CONNECTION, "Connection._Connection__reader", 2),
    Takes(_CONNECTION, "Connection._Connection__writer", 2),
    Uses(_CONNECTION, "Connection.connect", "_Connection__reader"),
    Uses(_CONNECTION, "Connection.connect", "_Connection__writer"),
    Uses(_CONNECTION, "Connection.connect", "connection_tune"),
    Uses(_CONNECTION, "Connection.__init__", "HEARTBEAT_GRACE_MULTIPLIER"),
    Uses(_CONNECTION, "Connection.is_connection_was_stuck.fget", "_Connection__last_frame_time"),
    Uses(_CONNECTION, "Connection._Connection__reader", "_Connection__last_frame_time"),
    Uses(_CONNECTION, "FrameReceiver.__init__", "reader"),
    Uses("aiormq.base", "Base.__init__", "loop"),
    Exists("aiormq.base", "Base.closing"),
    Exists("aiormq.base", "Base.is_closed"),
    Exists("aiormq.exceptions", "AMQPConnectionError"),
    Exists("aiormq.exceptions", "InvalidFrameError"),
    Exists("pamqp.exceptions", "PAMQPException"),
    # Sockets that can be cut off.
    Exists(_CONNECTION, "TransportFactory"),
    Takes(_CONNECTION, "TCPTransportFactory.create", 2),
    Takes(_CONNECTION, "TLSTransportFactory.create", 2),
    Uses(_CONNECTION, "Connection.connect", "_transport_factory"),
    # Writing whole frames, in one write.
    Uses(_CONNECTION, "Connection.__init__", "write_queue"),
    Uses(_CONNECTION, "Connection._Connection__writer", "write_queue"),
    Uses(_CONNECTION, "Connection._Connection__writer", "payload"),
    Uses(_CONNECTION, "Connection._Connection__writer", "should_drain"),
    Behaves("aiormq.abc.ChannelFrame keeps its payload", _payloads_are_kept),
    Behaves("aiormq.abc.ChannelFrame.marshall is read by pamqp.frame.unmarshal", _frames_are_read_back),
    Behaves("fields of pamqp's frames", _fields_have_their_names),
    # Alarms, and refusals of a vhost.
    Takes(_CONNECTION, "Connection._Connection__handle_connection_blocked", 2),
    Takes(_CONNECTION, "Connection._Connection__handle_connection_unblocked", 2),
    Uses(_CONNECTION, "Connection._Connection__reader", "_Connection__handle_connection_blocked"),
    Uses(_CONNECTION, "Connection._Connection__reader", "_Connection__handle_connection_unblocked"),
    Uses(_CONNECTION, "Connection.__init__", "_Connection__connection_unblocked"),
    Uses(_CONNECTION, "Connection._rpc", "frame"),
    # Channels: opened, read by us, closed without waiting.
    Takes(_CONNECTION, "Connection.channel", 1, ("publisher_confirms", "frame_buffer_size")),
    Uses(_CHANNEL, "Channel.__init__", "number"),
    Uses(_CHANNEL, "Channel.__init__", "connection"),
    Uses(_CHANNEL, "Channel.__init__", "on_consumer_cancel_callbacks"),
    Uses(_CHANNEL, "Channel.__init__", "_Channel__close_event"),
    Uses(_CHANNEL, "Channel._on_close_frame", "_Channel__close_event"),
    Uses(_CHANNEL, "Channel._on_close_ok_frame", "_Channel__close_event"),
    Takes(_CHANNEL, "Channel.basic_qos", 1, ("prefetch_count", "timeout")),
    Takes(_CHANNEL, "Channel.basic_consume", 3, ("timeout",)),
    Takes(_CHANNEL, "Channel.basic_cancel", 2, ("timeout",)),
    # Confirms and returns on a connection of the application's.
    Takes(_CHANNEL, "Channel._on_confirm_frame", 2),
    Takes(_CHANNEL, "Channel._on_return_frame", 2),
    Uses(_CHANNEL, "Channel._reader", "_on_confirm_frame"),
    Uses(_CHANNEL, "Channel._reader", "_on_return_frame"),
    Takes(_CHANNEL, "Channel._get_frame", 1),
    Takes(_CHANNEL, "Channel._read_content", 3),
    # aio-pika's connection, which holds ours.
    Takes(_AIO_PIKA, "UnderlayConnection.connect", 2, ("timeout",)),
    Takes(_AIO_PIKA, "UnderlayConnection.make_connection", 1, ("timeout",)),
    Uses(_AIO_PIKA, "UnderlayConnection.connect", "make_connection"),
    Uses("aio_pika.connection", "Connection.__init__", "kwargs"),
    Uses("aio_pika.connection", "Connection.connect", "transport"),
    Takes("aio_pika.connection", "Connection._on_connection_close", 2),
    Takes("aio_pika.connection", "Connection._on_connected", 1),
)

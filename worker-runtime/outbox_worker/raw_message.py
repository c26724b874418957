"""The message object of aio-pika, for listeners that ask for it."""

from datetime import UTC, datetime
from typing import Any, cast

from aio_pika import IncomingMessage
from aiormq.abc import DeliveredMessage
from pamqp import commands
from pamqp.header import ContentHeader

from outbox_core.consumer import Received
from outbox_core.publisher import RareProperties

_NOTHING_RARE = RareProperties()


def raw_message(received: Received) -> IncomingMessage:
    """As aio-pika would have handed it over, except that it cannot be acked: that is the worker's to do.

    An ack by the listener raises a TypeError, where a second one on the wire would close the channel.
    """
    message = received.message
    delivery = commands.Basic.Deliver(
        consumer_tag="",
        delivery_tag=received.tag,
        redelivered=received.redelivered,
        exchange=received.exchange,
        routing_key=message.routing_key,
    )
    header = ContentHeader(body_size=len(message.body), properties=_properties(received))
    # Nothing but a settlement, which is refused, would use the channel.
    channel = cast("Any", None)
    return IncomingMessage(DeliveredMessage(delivery, header, message.body, channel), no_ack=True)


def _properties(received: Received) -> commands.Basic.Properties:
    message, rare = received.message, received.message.rare or _NOTHING_RARE
    moment = None if message.timestamp is None else datetime.fromtimestamp(message.timestamp, UTC)
    properties = commands.Basic.Properties(
        content_type=message.content_type,
        content_encoding=rare.content_encoding,
        headers=cast("Any", dict(message.headers)),
        delivery_mode=rare.delivery_mode,
        priority=rare.priority,
        correlation_id=rare.correlation_id,
        reply_to=rare.reply_to,
        expiration=None if message.expiration_ms is None else str(message.expiration_ms),
        message_id=message.message_id,
        timestamp=moment,
        message_type=rare.type,
        user_id=rare.user_id,
        app_id=rare.app_id,
    )
    # pamqp refuses to make properties that have one.
    properties.cluster_id = rare.cluster_id or ""
    return properties

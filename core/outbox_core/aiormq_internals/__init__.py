"""All that we know of aiormq beyond its documented API, and nothing else knows it.

aio-pika publishes one message a call, with a future, a task and a timer for each, and aiormq reads a frame
with three awaits and hands it through two queues. To publish, consume and answer in batches we use aiormq's
own connections and channels and rely on this, which `test_what_we_rely_on_in_aiormq` pins. What can be seen
of it without a connection is listed in `aiormq_requirements`, and checked before this package is imported:

- An open connection looks up its (mangled) `__reader` and `__writer` on itself. The reader is called with a
  frame receiver that has read nothing beyond the handshake, and iterates over it for a frame's size, its
  channel's number and the frame. It notes the time of a frame in a (mangled) attribute, by which it tells a
  connection that is stuck. The writer is called with the stream, and writes nothing but whole frames.
- What is put into a connection's `write_queue` as a `ChannelFrame` is written as it is, in this order;
  without a `drain_future` the writer does not wait for the socket: heartbeats pass while we are blocked.
- A channel that has sent or received `channel.close` has its (mangled) `__close_event` set.
- A channel looks up `_on_confirm_frame` and `_on_return_frame` on itself and awaits them for each ack or nack
  and for each return, one after the other in the order of arrival. (aiormq 6 looked them up only once.)
- After the frame of a return, `_get_frame` gives its content header and `_read_content` the rest.
- `connection_tune.frame_max` is what was agreed with the broker.
- A connection looks up its (mangled) handlers of `connection.blocked` and `unblocked` on itself, and its
  (mangled) event is set while it is not blocked.
"""

from outbox_core.aiormq_internals.bulk_connection import LONGEST_TURN_SECONDS, BulkConnection, Sink
from outbox_core.aiormq_internals.channels import (
    abandon,
    attach,
    close_within,
    frame_max,
    take_over_confirms,
    write,
    write_at_once,
)
from outbox_core.aiormq_internals.connections import watch_blocked

__all__ = [
    "LONGEST_TURN_SECONDS",
    "BulkConnection",
    "Sink",
    "abandon",
    "attach",
    "close_within",
    "frame_max",
    "take_over_confirms",
    "watch_blocked",
    "write",
    "write_at_once",
]

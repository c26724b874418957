"""The vocabulary of the outbox: messages, `Emitter`, `@listen`, the table and the topology's names.

Imports the standard library and nothing else, so that an application which emits a message takes on no
dependency by it. Drivers and frameworks are recognised by their class names, never imported.
"""

from outbox.emitter import AutocommitWarning, Emitter, SyncEmitter
from outbox.listener import Listener, listen
from outbox.message import OutboxMessage
from outbox.retry import Constant, Delays, Exponential, Linear, NoRetry, Reject, RetryPolicy
from outbox.tracking import get_tracking_ids, tracking

__all__ = [
    "AutocommitWarning",
    "Constant",
    "Delays",
    "Emitter",
    "Exponential",
    "Linear",
    "Listener",
    "NoRetry",
    "OutboxMessage",
    "Reject",
    "RetryPolicy",
    "SyncEmitter",
    "get_tracking_ids",
    "listen",
    "tracking",
]

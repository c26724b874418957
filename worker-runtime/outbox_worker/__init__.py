"""From the broker to the handler: call, retry, dead-letter, inbox, shutdown.

May import `outbox` and `outbox_core`. Never reads the outbox table.
"""

from outbox_core.environment import SettingError
from outbox_worker.call import Around
from outbox_worker.errors import (
    ExpiredError,
    HandlerCancelledError,
    HandlerExitError,
    HandlerTimeoutError,
    MessageIdMissingError,
    NotAwaitedError,
    TransactionAbortedError,
    TransactionEndedError,
    WorkerError,
)
from outbox_worker.hooks import Handled
from outbox_worker.settings import Settings
from outbox_worker.worker import Worker

__all__ = [
    "Around",
    "ExpiredError",
    "Handled",
    "HandlerCancelledError",
    "HandlerExitError",
    "HandlerTimeoutError",
    "MessageIdMissingError",
    "NotAwaitedError",
    "SettingError",
    "Settings",
    "TransactionAbortedError",
    "TransactionEndedError",
    "Worker",
    "WorkerError",
]

"""An outbox in memory, for an application's own tests: no Postgres, no RabbitMQ, no sleeping.

The application keeps its own `Emitter`, which is given a session of the `MemoryOutbox`; what it validates and
encodes is what runs in production. `await outbox.drain()` then plays relay, broker and worker. Imports the
standard library and `outbox`; asyncio only where a synchronous test drains async listeners.
"""

from outbox.testing.clock import Clock
from outbox.testing.outbox import MemoryOutbox
from outbox.testing.records import DeadLetter, Handled, RecordedMessage, Retry
from outbox.testing.session import MemorySession, SyncMemorySession

__all__ = [
    "Clock",
    "DeadLetter",
    "Handled",
    "MemoryOutbox",
    "MemorySession",
    "RecordedMessage",
    "Retry",
    "SyncMemorySession",
]

"""The vocabulary of the outbox: messages, `Emitter`, `@listen`, the table and the topology's names.

Imports the standard library and nothing else, so that an application which emits a message takes on no
dependency by it. Drivers and frameworks are recognised by their class names, never imported.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outbox import schema, testing, topology
    from outbox.emitter import AutocommitWarning, Emitter, SyncEmitter
    from outbox.history import get_tracking_ids, tracking
    from outbox.listener import Listener, listen
    from outbox.message import OutboxMessage
    from outbox.retry import Constant, Delays, Exponential, Linear, NoRetry, Reject, Retry, RetryPolicy

_MODULES = ("schema", "testing", "topology")
_NAMES = {
    **dict.fromkeys(("AutocommitWarning", "Emitter", "SyncEmitter"), "outbox.emitter"),
    **dict.fromkeys(("get_tracking_ids", "tracking"), "outbox.history"),
    **dict.fromkeys(("Listener", "listen"), "outbox.listener"),
    "OutboxMessage": "outbox.message",
    **dict.fromkeys(
        ("Constant", "Delays", "Exponential", "Linear", "NoRetry", "Reject", "Retry", "RetryPolicy"),
        "outbox.retry",
    ),
}
_EXTRAS = {
    **dict.fromkeys(("IMMEDIATELY", "MessageRelay", "NEVER"), ("outbox_relay", "relay")),
    "Worker": ("outbox_worker", "worker"),
}
"""What lives in a package of its own, and the extra that brings what it needs."""

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
    "Retry",
    "RetryPolicy",
    "SyncEmitter",
    "get_tracking_ids",
    "listen",
    "schema",
    "testing",
    "topology",
    "tracking",
]


def __getattr__(name: str) -> Any:
    """Load a part on its first use, so that nobody waits for what they do not need."""
    if name in _MODULES:
        return importlib.import_module(f"outbox.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    if name in _EXTRAS:
        return _from_extra(name)
    raise AttributeError(f"module 'outbox' has no attribute {name!r}")


def _from_extra(name: str) -> Any:
    package, extra = _EXTRAS[name]
    try:
        return getattr(importlib.import_module(package), name)
    except ModuleNotFoundError as error:
        raise ImportError(
            f"outbox.{name} needs {error.name}: pip install 'outbox-operator[{extra}]'", name=error.name
        ) from error


def __dir__() -> list[str]:
    return [*__all__, *_EXTRAS]

"""From the table to the broker: claim, publish, settle.

May import `outbox` and `outbox_core`. Never calls a listener.
"""

from outbox_core.environment import SettingError
from outbox_relay.errors import RelayError, TableError
from outbox_relay.hooks import Relayed
from outbox_relay.relay import MessageRelay
from outbox_relay.settings import IMMEDIATELY, NEVER, Settings

__all__ = [
    "IMMEDIATELY",
    "NEVER",
    "MessageRelay",
    "RelayError",
    "Relayed",
    "SettingError",
    "Settings",
    "TableError",
]

"""How a statement is sent through whatever session or connection the application already has.

One module a driver family. None imports its driver: a session is recognised by the names of its classes,
and what is needed beyond it is taken from the session itself. Nothing here begins, commits or rolls back.
"""

from outbox.drivers.driver import AsyncDriver, Driver, SyncDriver
from outbox.drivers.recognition import recognise
from outbox.drivers.statement import Statement

__all__ = ["AsyncDriver", "Driver", "Statement", "SyncDriver", "recognise"]

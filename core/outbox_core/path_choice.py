"""Chooses between the fast path to the broker and the plain one: the only place that does."""

import logging
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING

from outbox_core import aiormq_requirements
from outbox_core.logs import event

if TYPE_CHECKING:
    from outbox_core.fast_path import FastPath

_log = logging.getLogger("outbox.broker")


@cache
def fast_path() -> "FastPath | None":
    """The fast path, or None and one warning a process if aiormq lacks what it relies on."""
    if unmet := aiormq_requirements.unmet():
        event(
            _log,
            logging.WARNING,
            "aiormq lacks what batches rely on: messages are published and consumed one by one, more slowly; "
            "install the version of aiormq that outbox-operator requires",
            aiormq=version("aiormq"),
            unmet=", ".join(unmet),
        )
        return None
    # Not at the top: with a changed aiormq this import may fail.
    from outbox_core.fast_path import FastPath

    return FastPath()

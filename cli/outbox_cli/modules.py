"""The listeners in the modules of an application."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outbox.listener import Listener
from outbox_cli.failures import CommandError
from outbox_worker.errors import WorkerError
from outbox_worker.loading import load


def listeners_in(targets: Sequence[str]) -> list[Listener[..., Any]]:
    """Those of `shop.listeners` or `shop.listeners:book`, which are found as a worker finds them."""
    # What is developed is where one stands.
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    try:
        return load(targets)
    except WorkerError as error:
        raise CommandError(str(error)) from None


def modules_of(targets: Sequence[str]) -> list[str]:
    """The modules that targets begin with."""
    return [target.partition(":")[0] for target in targets]

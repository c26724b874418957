"""The services that a project runs on: those given, and private ones for what is not."""

import hashlib
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from outbox_cli.failures import fail, line_of
from outbox_cli.local import LocalServiceError, Services, start
from outbox_cli.local.runfolder import parent_folder

_SURVIVES_A_REBOOT = Path("/var/tmp")  # noqa: S108 - made safe by parent_folder
_HASH_DIGITS = 8


@contextmanager
def lodging(given: Mapping[str, str | None], keep: Path | None = None) -> Iterator[Services]:
    """Services for the time of the block. `given` are URLs, by the names of their variables.

    What goes wrong with a private one ends the command. SIGTERM ends the block as Ctrl-C does.
    """

    def interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    environment = {variable: url for variable, url in given.items() if url}
    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        with start(environment=environment, keep=keep) as services:
            yield services
    except LocalServiceError as error:
        fail(line_of(error))
    finally:
        signal.signal(signal.SIGTERM, before)


def kept_folder(manifests: Sequence[Path]) -> Path:
    """Where the data of a project is kept: another folder for each set of manifests."""
    paths = [path.resolve() for path in manifests]
    digest = hashlib.sha256("\n".join(map(str, paths)).encode()).hexdigest()[:_HASH_DIGITS]
    return parent_folder(_SURVIVES_A_REBOOT) / f"kept-{paths[0].name}-{digest}"

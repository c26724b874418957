"""A file in which listeners of several processes write down their calls, in one order for all of them."""

import os
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a listener, noted before it did anything else."""

    listener: str
    message_id: UUID
    attempt: int
    pid: int
    """Of the worker."""


class Journal:
    """Calls, oldest first. What is written stays when the writer is killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.touch()
        self._calls: list[Call] = []
        self._read = 0

    def note(self, listener: str, message_id: UUID, attempt: int) -> None:
        """Add a call of this process; in one write, which nobody else's comes between."""
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, f"{listener} {message_id} {attempt} {os.getpid()}\n".encode())
        finally:
            os.close(descriptor)

    @property
    def calls(self) -> list[Call]:
        """All calls so far."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            text = file.read()
        complete = text[: text.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.decode().splitlines():
            listener, message_id, attempt, pid = line.split()
            self._calls.append(Call(listener, UUID(message_id), int(attempt), int(pid)))
        return self._calls

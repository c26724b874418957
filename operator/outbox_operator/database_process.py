"""Looks at databases in a process of their own, which whatever a server answers can end and not the operator.

asyncpg reads what servers send in C: one that is not Postgres can crash it, fill memory or keep it busy. The
process takes requests and gives views as lines of JSON; its end, or that of its input, ends all of it.
"""

import asyncio
import contextlib
import logging
import os
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from types import TracebackType
from typing import Self

from pydantic import TypeAdapter

from outbox_core import loop
from outbox_core.logs import event
from outbox_operator.database import LOOK_SECONDS, look
from outbox_operator.database_access import DatabaseAccess
from outbox_operator.database_view import DatabaseView
from outbox_operator.resources.relay import Database

_MARGIN_SECONDS = 15.0
"""Beyond what a look may take: a busy machine may need it to start the process."""
_END_SECONDS = 2.0
_MOST_MEMORY_BYTES = 256 * 1024**2
"""Of data: less than what the chart leaves the whole container, which would end with it."""
_MOST_LINE_BYTES = 4 * 1024**2

_log = logging.getLogger("outbox.operator.databases")


class DatabaseProcessError(Exception):
    """The process ended, or hung, at this look."""


@dataclass(frozen=True, slots=True)
class _Asked:
    number: int
    access: DatabaseAccess = field(repr=False)
    wanted: Database


@dataclass(frozen=True, slots=True)
class _Seen:
    number: int
    view: DatabaseView | None
    """None if the look failed unexpectedly."""


_ASKED: TypeAdapter[_Asked] = TypeAdapter(_Asked)
_SEEN: TypeAdapter[_Seen] = TypeAdapter(_Seen)


class DatabaseProcess:
    """Looks at databases; the process starts with the block, and again at the first look after its end."""

    def __init__(self) -> None:
        self._child: _Child | None = None
        self._starting = asyncio.Lock()
        self._alone = asyncio.Semaphore(2)

    async def __aenter__(self) -> Self:
        # It takes a while to import what it needs: the first look need not wait for all of that.
        self._child = await _Child.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._child is not None:
            await self._child.close()

    async def look(self, access: DatabaseAccess, wanted: Database) -> DatabaseView:
        """What a look finds, or a `DatabaseProcessError`."""
        async with self._starting:
            if self._child is None or self._child.is_over:
                self._child = await _Child.start()
        child = self._child
        try:
            return await child.look(access, wanted)
        except _EndedError:
            if child.is_culprit_known:
                raise DatabaseProcessError("what the server sent ended the process that looked") from None
        # It may have been another look's server: this one is looked at where nobody else suffers.
        async with self._alone:
            alone = await _Child.start()
            try:
                return await alone.look(access, wanted)
            except _EndedError:
                raise DatabaseProcessError("what the server sent ended the process that looked") from None
            finally:
                await alone.close()


class _EndedError(Exception):
    """The process ended before it answered."""


class _Child:
    """One process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._numbers = count()
        self._waiting: dict[int, asyncio.Future[DatabaseView | None]] = {}
        self._reading = asyncio.create_task(self._read())
        self.is_over = False
        """Whether it has ended, or is about to."""
        self.is_culprit_known = False
        """Whether it ended with a single look under way."""

    @classmethod
    async def start(cls) -> "_Child":
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "outbox_operator.database_process",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            limit=_MOST_LINE_BYTES,
        )
        return cls(process)

    async def look(self, access: DatabaseAccess, wanted: Database) -> DatabaseView:
        asked = _Asked(next(self._numbers), access, wanted)
        answer = self._waiting[asked.number] = asyncio.get_running_loop().create_future()
        try:
            if self.is_over or self._process.stdin is None:
                raise _EndedError
            with contextlib.suppress(ConnectionError):
                self._process.stdin.write(_ASKED.dump_json(asked) + b"\n")
                await self._process.stdin.drain()
            async with asyncio.timeout(LOOK_SECONDS + _MARGIN_SECONDS):
                view: DatabaseView | None = await answer
        except TimeoutError:
            # Something blocks it, and who did is not known.
            self._end()
            raise _EndedError from None
        finally:
            self._waiting.pop(asked.number, None)
        if view is None:
            raise DatabaseProcessError("the look failed unexpectedly; the lines before this one say how")
        return view

    async def close(self) -> None:
        self.is_over = True
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._end()
            await self._process.wait()
        await asyncio.wait([self._reading])

    def _end(self) -> None:
        self.is_over = True
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def _read(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - asked for
        try:
            while line := await self._process.stdout.readline():
                seen = _SEEN.validate_json(line)
                if (answer := self._waiting.get(seen.number)) and not answer.done():
                    answer.set_result(seen.view)
        finally:
            if not self.is_over:
                event(_log, logging.WARNING, "process ended", looks=len(self._waiting))
            self._end()
            self.is_culprit_known = len(self._waiting) == 1
            for answer in self._waiting.values():
                if not answer.done():
                    answer.set_exception(_EndedError())


async def _serve(write: Callable[[bytes], object]) -> None:
    """Answer what comes on the standard input, until it ends."""
    reader = asyncio.StreamReader(limit=_MOST_LINE_BYTES)
    running = asyncio.get_running_loop()
    await running.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    looks: set[asyncio.Task[None]] = set()

    async def answer(asked: _Asked) -> None:
        view = None
        try:
            view = await look(asked.access.url, asked.wanted, asked.access.ca)
        finally:
            write(_SEEN.dump_json(_Seen(asked.number, view)) + b"\n")

    while line := await reader.readline():
        task = asyncio.create_task(answer(_ASKED.validate_json(line)))
        looks.add(task)
        task.add_done_callback(looks.discard)


def _write(line: bytes) -> None:
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    loop.run(_serve(_write))

"""A thread that notices when the event loop does not turn, and says which listener holds it up, and where."""

import asyncio
import logging
import sys
import threading
import time
from collections.abc import Mapping
from types import FrameType

_log = logging.getLogger("outbox.worker")

LIMIT_SECONDS = 1.0
"""How long the loop may stand still without a word."""


class Stall:
    """Watches the running loop while `run` runs."""

    def __init__(self, files: Mapping[str, str], limit_seconds: float = LIMIT_SECONDS) -> None:
        """`files` are the files of the listeners' code, by the names of their tasks."""
        self._files = files
        self._limit_seconds = limit_seconds
        self._beat = time.monotonic()
        self._ended = threading.Event()

    async def run(self) -> None:
        """Watch until cancelled."""
        loop, loop_thread = asyncio.get_running_loop(), threading.get_ident()
        self._beat = time.monotonic()
        threading.Thread(
            target=self._watch, args=(loop, loop_thread), name="outbox-stall", daemon=True
        ).start()
        try:
            while True:
                self._beat = time.monotonic()
                await asyncio.sleep(self._limit_seconds / 5)
        finally:
            self._ended.set()

    def _watch(self, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        told = 0.0
        while not self._ended.wait(self._limit_seconds / 5):
            beat = self._beat
            if time.monotonic() - beat < self._limit_seconds or beat == told:
                continue
            # Without a task it is not held up: the process was, or the machine.
            if (task := asyncio.current_task(loop)) is not None:
                told = beat
                self._tell(task.get_name(), sys._current_frames().get(loop_thread))

    def _tell(self, name: str, frame: FrameType | None) -> None:
        _log.warning(
            "the event loop has not turned for %g s: %s is at %s; nothing else runs meanwhile. "
            "Await what takes time, or make the listener a plain function to have it run in a thread",
            self._limit_seconds,
            f"the listener of queue {name}" if name in self._files else f"the task {name}",
            _place(frame, self._files.get(name)),
        )


def _place(innermost: FrameType | None, file: str | None) -> str:
    """Where the listener's own code is, or where the thread is at all."""
    frame = innermost
    while frame is not None and frame.f_code.co_filename != file:
        frame = frame.f_back
    frame = frame or innermost
    if frame is None:
        return "an unknown place"
    return f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"

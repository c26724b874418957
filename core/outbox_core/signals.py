"""SIGTERM and SIGINT as a request to finish, and a second one as an order to leave now."""

import asyncio
import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self, TypeAlias

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_SHELL_OFFSET = 128

_log = logging.getLogger("outbox.signals")

_Handler: TypeAlias = Callable[[int, FrameType | None], Any] | int | None


class Shutdown:
    """The signals' handlers, on the running loop, from `__enter__` to `__exit__`.

        with Shutdown() as shutdown:
            ...
            await shutdown.requested.wait()

    The second signal calls `on_second`; without that it cancels the task that entered, and the process
    leaves with the status that a shell gives to the signal. A third one kills, also where the loop hangs.
    Off the main thread, where Python knows no signals, it does nothing.
    """

    def __init__(self, on_second: Callable[[], None] | None = None) -> None:
        self.requested = asyncio.Event()
        """Set by the first signal."""
        self._on_second = on_second
        self._forced_by: signal.Signals | None = None
        self._previous: dict[signal.Signals, _Handler] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[Any] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._loop = asyncio.get_running_loop()
            self._task = asyncio.current_task()
            for number in _SIGNALS:
                self._previous[number] = signal.getsignal(number)
                self._loop.add_signal_handler(number, self._receive, number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove_handlers()
        for number, handler in self._previous.items():
            # None is a handler that was not installed by Python, and cannot be put back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if self._forced_by is not None and isinstance(error, asyncio.CancelledError):
            raise SystemExit(_SHELL_OFFSET + self._forced_by) from None

    def _receive(self, number: signal.Signals) -> None:
        if not self.requested.is_set():
            _log.info("shutting down", extra={"signal": number.name})
            self.requested.set()
            return
        _log.warning("leaving at once", extra={"signal": number.name})
        self._remove_handlers()
        for known in _SIGNALS:
            signal.signal(known, signal.SIG_DFL)
        self._leave(number)

    def _leave(self, number: signal.Signals) -> None:
        if self._on_second is not None:
            self._on_second()
        elif self._task is not None:
            self._forced_by = number
            self._task.cancel(f"second signal: {number.name}")

    def _remove_handlers(self) -> None:
        if self._loop is not None:
            for number in _SIGNALS:
                self._loop.remove_signal_handler(number)

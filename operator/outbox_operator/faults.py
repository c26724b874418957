"""The boundary around what tenants can reach: an unexpected exception ends one attempt, and nothing else.

Resources, Secrets, brokers and databases reach libraries that may raise anything. What is known to go wrong
is handled where it happens. Everything else is caught here alone: counted, and logged with its traceback.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from outbox_core.backoff import Backoff
from outbox_core.logs import event

_RESTARTS = Backoff(1.0, 60.0)
_LONG_ENOUGH_SECONDS = 120.0
"""After which work that ends counts as having gone well."""

_MOST_REMEMBERED = 10_000

_log = logging.getLogger("outbox.operator.faults")


class Faults:
    """Contains unexpected exceptions."""

    def __init__(
        self,
        on_fault: Callable[[str], None] = lambda part: None,  # noqa: ARG005 - nobody counts
        passing: tuple[type[Exception], ...] = (),
    ) -> None:
        """`on_fault` is told the part of the operator that failed; `passing` are contained nowhere."""
        self._on_fault = on_fault
        self._passing = passing
        self._logged: dict[tuple[str, str], tuple[object, ...]] = {}
        """The last fault of each part and subject whose traceback was logged."""

    @contextmanager
    def contained(self, part: str, subject: str = "") -> Iterator[None]:
        """Suppress what the block raises unexpectedly; whoever awaits its result gets none."""
        try:
            yield
        except asyncio.CancelledError as error:
            if _is_cancelled():
                raise
            # A library ended what it waited for itself: without this, the task would just be gone.
            self._note(part, subject, error)
        except self._passing:
            raise
        except Exception as error:
            self._note(part, subject, error)
        else:
            self._logged.pop((part, subject), None)

    async def keep_running(self, part: str, work: Callable[[], Awaitable[object]]) -> None:
        """Do work that never ends, and begin it anew when it does, later each time; until cancelled."""
        loop, restarts = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            with self.contained(part):
                await work()
            restarts = 1 if loop.time() - began > _LONG_ENOUGH_SECONDS else restarts + 1
            await asyncio.sleep(_RESTARTS.delay(restarts))

    def _note(self, part: str, subject: str, error: BaseException) -> None:
        self._on_fault(part)
        place, signature = (part, subject), _signature(error)
        if self._logged.get(place) == signature:
            event(_log, logging.ERROR, "failed again", part=part, subject=subject, error=type(error).__name__)
            return
        if len(self._logged) >= _MOST_REMEMBERED:
            self._logged.pop(next(iter(self._logged)))
        self._logged[place] = signature
        fields = {"part": part, "subject": subject}
        _log.error("unexpected error", exc_info=error, extra={"fields": fields})


def _is_cancelled() -> bool:
    """Whether somebody asked the current task to end; outside of tasks nobody can tell."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def _signature(error: BaseException) -> tuple[object, ...]:
    """Where it was raised and what: the same fault has the same, whatever the message quotes."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return (type(error), trace and (trace.tb_frame.f_code, trace.tb_lineno))

"""The ids of the emits that led to this one, carried through listeners by a context variable."""

import contextlib
import uuid
from collections.abc import Iterator, Sequence
from contextvars import ContextVar

_current: ContextVar[tuple[str, ...]] = ContextVar("outbox_tracking_ids", default=())


def get_tracking_ids() -> list[str]:
    """The ids that led here, oldest first; empty outside of `tracking()` and of listeners."""
    return list(_current.get())


@contextlib.contextmanager
def tracking(ids: Sequence[str] | None = None) -> Iterator[list[str]]:
    """Give this block an id of its own, before those of the emits inside it.

    With `ids`, the block continues that history instead: it is how a listener's emits follow its message.
    """
    history = (*_current.get(), str(uuid.uuid4())) if ids is None else tuple(ids)
    previous = _current.get()
    _current.set(history)
    try:
        yield list(history)
    finally:
        # Not reset(token): a web framework may leave a dependency in another context than it entered it.
        if _current.get() is history:
            _current.set(previous)

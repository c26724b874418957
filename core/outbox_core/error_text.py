"""What an exception says, whatever its class: without passwords, of a bounded size, and without failing.

An error that a listener raises may quote all of a message, have a `__str__` that fails, or stand for
thousands of errors of validation, which pydantic would write out one by one.
"""

import traceback
from collections.abc import Iterator

from outbox_core.masking import LONGEST, mask

_MOST_ERRORS = 100
"""How many errors of validation are worth writing out; each costs some microseconds."""
_MOST_LINKS = 8
_MOST_NOTES = 3
_MOST_MEMBERS = 5
_DEEPEST = 3
_NOTE_LENGTH = 1000
_LINK_LENGTH = 4096
_FRAMES = 50


def text_of(error: object, longest: int = LONGEST) -> str:
    """What it says."""
    try:
        count = _error_count(error)
        text = f"{count} errors of validation" if count > _MOST_ERRORS else str(error)
    except Exception as failure:
        return f"(its text cannot be read: {type(failure).__name__})"
    return mask(text, longest)


def type_of(error: BaseException) -> str:
    """Its class with the module, as `builtins.ValueError`."""
    return f"{type(error).__module__}.{type(error).__qualname__}"


def traceback_of(error: BaseException, frames: int = _FRAMES) -> str:
    """Where it was raised, with the errors that led to it: the innermost frames of each."""
    try:
        return "".join(_traceback(error, frames, 0))
    except Exception as failure:
        return f"(the traceback cannot be written: {type(failure).__name__})"


def _traceback(error: BaseException, frames: int, depth: int) -> Iterator[str]:
    """Not `traceback.format_exception`, which reads the whole text of every error."""
    for each, follows in _links(error):
        if each.__traceback__ is not None:
            yield "Traceback (most recent call last):\n"
            yield mask("".join(traceback.format_tb(each.__traceback__, -frames)), 4 * LONGEST)
        name = type_of(each).removeprefix("builtins.")
        words = text_of(each, _LINK_LENGTH)
        yield f"{name}: {words}\n" if words else f"{name}\n"
        for note in _notes(each):
            yield f"{text_of(note, _NOTE_LENGTH)}\n"
        if isinstance(each, BaseExceptionGroup) and depth < _DEEPEST:
            for number, member in enumerate(each.exceptions[:_MOST_MEMBERS], 1):
                yield f"  error {number} of {len(each.exceptions)}:\n"
                inner = "".join(_traceback(member, frames, depth + 1))
                yield "".join(f"  | {line}\n" for line in inner.splitlines())
        if follows:
            yield f"\n{follows}\n\n"


def _links(error: BaseException) -> Iterator[tuple[BaseException, str]]:
    """The errors that led to it and itself, each with what is said between it and the next."""
    links: list[tuple[BaseException, str]] = [(error, "")]
    seen = {id(error)}
    while len(links) < _MOST_LINKS:
        last = links[-1][0]
        if last.__cause__ is not None:
            before = last.__cause__
            words = "The above exception was the direct cause of the following exception:"
        elif last.__context__ is not None and not last.__suppress_context__:
            before = last.__context__
            words = "During handling of the above exception, another exception occurred:"
        else:
            break
        if id(before) in seen:
            break
        seen.add(id(before))
        links.append((before, words))
    return reversed(links)


def _notes(error: BaseException) -> list[object]:
    try:
        return list(error.__notes__[:_MOST_NOTES])
    except Exception:
        # It has none, or they are what nobody can read.
        return []


def _error_count(error: object) -> int:
    """How many errors a pydantic error stands for; 0 for any other."""
    count = getattr(error, "error_count", None) if type(error).__module__.startswith("pydantic") else None
    return int(count()) if count else 0

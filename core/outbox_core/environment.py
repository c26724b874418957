"""What a container is told by its environment: settings by the names of their fields, URLs, a port."""

import os
from collections.abc import Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any, Literal, TypeVar, get_args, get_origin

from outbox_core.error_text import text_of

S = TypeVar("S")


class SettingError(ValueError):
    """A setting that cannot be."""


def settings_of(kind: type[S], environment: Mapping[str, str] = os.environ) -> S:
    """The settings, a dataclass, that `OUTBOX_…` variables give: each has its field's name, in capitals."""
    given = {
        field.name: _parsed(variable, environment[variable], field.type)
        for field in fields(kind)  # type: ignore[arg-type]  # no type says "a dataclass"
        if (variable := variable_of(field.name)) in environment
    }
    return kind(**given)


def variable_of(field: str) -> str:
    """The variable that gives a field."""
    return f"OUTBOX_{field.upper()}"


def needed_url(environment: Mapping[str, str], variable: str) -> str:
    """The URL in a variable that must be there."""
    value = environment.get(variable, "")
    if not value:
        raise SettingError(f"{variable} is not set; give the URL, with user and password, in the environment")
    return value


def log_format(environment: Mapping[str, str]) -> Literal["text", "json"]:
    """How to write logs: what `OUTBOX_LOG_FORMAT` says."""
    match environment.get("OUTBOX_LOG_FORMAT", "text"):
        case "text" | "json" as known:
            return known
        case other:
            raise SettingError(f"OUTBOX_LOG_FORMAT={other!r}: write text or json")


def probe_port(environment: Mapping[str, str]) -> int:
    """Where to serve the probes: what `OUTBOX_PROBE_PORT` says."""
    text = environment.get("OUTBOX_PROBE_PORT", "8080")
    if not text.isdecimal():
        raise SettingError(f"OUTBOX_PROBE_PORT={text!r}: write a port's number, or 0 for any free one")
    return int(text)


def probe_host(environment: Mapping[str, str]) -> str | None:
    """The address to serve them on: what `OUTBOX_PROBE_HOST` says; None for all addresses."""
    return environment.get("OUTBOX_PROBE_HOST") or None


def leaves(error: BaseException) -> list[BaseException]:
    """What an exception group consists of, in the end."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def one_line(problem: BaseException) -> str:
    """What it says, for one line of log."""
    return "; ".join(text_of(problem).splitlines())


def _parsed(variable: str, text: str, kind: Any) -> Any:
    try:
        return _value(text, kind)
    except (ValueError, OverflowError) as error:
        raise SettingError(f"{variable}={text!r}: {error}") from error


def _value(text: str, kind: Any) -> Any:
    if kind is bool:
        return _boolean(text)
    if kind in (int, float, str):
        return kind(text)
    if kind is timedelta:
        return timedelta(seconds=float(text))
    if get_origin(kind) is Literal:
        return _choice(text, get_args(kind))
    if get_origin(kind) is tuple:
        return _sequence(text, get_args(kind)[0])
    return _alternative(text, get_args(kind))


def _alternative(text: str, kinds: tuple[Any, ...]) -> Any:
    """The first of several types that takes the text; an empty one is None where that is allowed."""
    if type(None) in kinds and text.lower() in ("", "none"):
        return None
    errors = []
    for kind in kinds:
        if kind is type(None):
            continue
        try:
            return _value(text, kind)
        except (ValueError, OverflowError) as error:
            errors.append(str(error))
    raise ValueError("; ".join(filter(None, errors)))


def _sequence(text: str, kind: Any) -> tuple[Any, ...]:
    """Values with commas between them; nothing at all is an empty sequence."""
    return tuple(_value(part.strip(), kind) for part in text.split(",")) if text.strip() else ()


def _boolean(text: str) -> bool:
    if text.lower() in ("true", "yes", "on", "1"):
        return True
    if text.lower() in ("false", "no", "off", "0"):
        return False
    raise ValueError("write true or false")


def _choice(text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise ValueError(f"write {' or '.join(choices)}")
    return text.lower()

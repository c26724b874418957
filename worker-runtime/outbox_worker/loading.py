"""Listeners by the names of their modules: `shop.listeners`, or `shop.listeners:on_user_created`.

And what a container has to say about the one that it was made for.
"""

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from outbox.listener import Listener
from outbox.retry import Delays
from outbox_worker.errors import WorkerError
from outbox_worker.settings import Override


def load(targets: Iterable[str]) -> list[Listener[..., Any]]:
    """The listeners of all targets, each once; a `WorkerError` names what is there instead."""
    found = [listener for target in targets for listener in _listeners(target)]
    return list({id(listener): listener for listener in found}.values())


def overridden(listeners: Sequence[Listener[..., Any]], override: Override) -> Listener[..., Any]:
    """The only one of `listeners`, with the queue, the delays and the order that `override` gives it."""
    if len(listeners) != 1:
        names = ", ".join(f"{each.callback.__module__}:{_name(each)}" for each in listeners)
        raise WorkerError(
            f"queue {override.queue!r} is for one listener, and there are {len(listeners)}: {names}; "
            "name one as module:function"
        )
    (listener,) = listeners
    changed = replace(listener, queue=override.queue)
    if override.retry_delays is not None:
        ladder = Delays(override.retry_delays)
        # Which exceptions are worth a retry is the code's to know. Its jitter goes: it would ask for tiers
        # that nobody has made.
        policy = replace(ladder, only=listener.policy(ladder).only)
        changed = replace(changed, retry_delays=policy)
    if override.ordered is not None:
        changed = replace(changed, ordered=override.ordered)
    return changed


def _name(listener: Listener[..., Any]) -> str:
    return getattr(listener.callback, "__qualname__", repr(listener.callback))


def _listeners(target: str) -> list[Listener[..., Any]]:
    name, _, attribute = target.partition(":")
    module = _module(name, target)
    if attribute:
        return _named(module, attribute, target)
    found = [value for value in vars(module).values() if isinstance(value, Listener)]
    if not found:
        raise WorkerError(
            f"{target}: the module has no listener; decorate a function with @listen, or name a list of "
            f"listeners as {name}:NAME"
        )
    return found


def _module(name: str, target: str) -> ModuleType:
    if not name or name.endswith(".py") or "/" in name:
        raise WorkerError(f"{target}: write a module's dotted name, as shop.listeners or shop.listeners:name")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # A module of that name that misses one which it imports is another matter.
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise WorkerError(f"{target}: the module cannot be imported: {error}") from error
        raise WorkerError(
            f"{target}: there is no module {error.name!r}; run from the folder that has it, "
            "or put that folder on PYTHONPATH"
        ) from error
    except Exception as error:
        raise WorkerError(
            f"{target}: the module cannot be imported: {type(error).__name__}: {error}"
        ) from error


def _named(module: ModuleType, attribute: str, target: str) -> list[Listener[..., Any]]:
    value = getattr(module, attribute, None)
    values = list(value) if isinstance(value, list | tuple) else [value]
    found = [each for each in values if isinstance(each, Listener)]
    if found and len(found) == len(values):
        return found
    there = sorted(name for name, each in vars(module).items() if isinstance(each, Listener))
    wrong = (
        "there is no such name" if not hasattr(module, attribute) else "it is no listener and no list of them"
    )
    raise WorkerError(f"{target}: {wrong}; the module's listeners are: {', '.join(there) or 'none'}")

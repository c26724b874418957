"""A snapshot that keeps up with what is done to its virtual host, so that nobody has to look again."""

import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import assert_never

from outbox_operator.broker import passwords
from outbox_operator.broker.actions import (
    Action,
    MakeBinding,
    MakeExchange,
    MakeQueue,
    MakeUser,
    RemoveBinding,
    RemoveExchange,
    RemoveQueue,
    RemoveUser,
)
from outbox_operator.broker.conflicts import is_as_wanted
from outbox_operator.broker.listings import ordered
from outbox_operator.broker.snapshot import (
    ObservedBinding,
    ObservedExchange,
    ObservedQueue,
    ObservedUser,
    Snapshot,
)


class LiveSnapshot:
    """What was seen, and what was done since."""

    def __init__(self, seen: Snapshot) -> None:
        self._exchanges = dict(seen.exchanges)
        self._queues = dict(seen.queues)
        self._bindings = dict(seen.bindings)
        self._users = None if seen.users is None else dict(seen.users)
        self.view = Snapshot(self._exchanges, self._queues, self._bindings, self._users)
        """All of it, at any time: to copy a large virtual host for each action would be dear."""

    def shows(self, action: Action) -> bool:
        """Whether `action` would make what is there already; only told of what many resources share."""
        match action:
            case MakeExchange(exchange):
                found = self._exchanges.get(exchange.name)
                return found == ObservedExchange(exchange.name, exchange.kind, durable=True)
            case MakeBinding(binding, owner):
                known = self._bindings.get(binding.queue, ())
                return any((each.binding, each.owner) == (binding, owner) for each in known)
            case MakeQueue(queue):
                there = self._queues.get(queue.name)
                return there is not None and is_as_wanted(there, queue)
            case _:
                return False

    def apply(self, done: Action, properties_key: str | None) -> None:
        """Note what was done; `properties_key` is that of a binding that was made."""
        match done:
            case MakeExchange(exchange):
                self._exchanges[exchange.name] = ObservedExchange(exchange.name, exchange.kind, durable=True)
            case MakeQueue(queue):
                made = ObservedQueue(queue.name, queue.arguments, durable=True, messages=0)
                there = self._queues.get(queue.name, made)
                self._queues[queue.name] = replace(made, messages=there.messages)
            case MakeBinding(binding, owner):
                others = [
                    each
                    for each in self._bindings.get(binding.queue, ())
                    if (each.binding, each.owner) != (binding, owner)
                ]
                made_binding = ObservedBinding(binding, properties_key or "", owner)
                self._bindings[binding.queue] = ordered([*others, made_binding])
            case RemoveBinding(binding, key):
                self._keep_bindings(
                    binding.queue, lambda each: (each.binding, each.properties_key) != (binding, key)
                )
            case RemoveQueue(name):
                self._queues.pop(name, None)
                self._bindings.pop(name, None)
            case RemoveExchange(name):
                self._exchanges.pop(name, None)
                for bound in list(self._bindings):
                    self._keep_bindings(bound, lambda each: each.binding.exchange != name)
            case MakeUser(name, password, permissions):
                if self._users is not None:
                    kept = passwords.hashed(password, secrets.token_bytes(4))
                    self._users[name] = ObservedUser(name, kept, passwords.SHA256, permissions)
            case RemoveUser(name):
                if self._users is not None:
                    self._users.pop(name, None)
            case _:
                assert_never(done)

    def _keep_bindings(self, queue: str, is_kept: Callable[[ObservedBinding], bool]) -> None:
        kept = tuple(each for each in self._bindings.get(queue, ()) if is_kept(each))
        if kept:
            self._bindings[queue] = kept
        else:
            self._bindings.pop(queue, None)

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
    RevokePermissions,
)
from outbox_operator.broker.conflicts import is_as_wanted, is_exchange_as_wanted
from outbox_operator.broker.listings import ordered
from outbox_operator.broker.policies import matching_policy
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
        self.view = replace(
            seen,
            exchanges=self._exchanges,
            queues=self._queues,
            bindings=self._bindings,
            users=self._users,
        )
        """All of it, at any time: to copy a large virtual host for each action would be dear."""

    def shows(self, action: Action) -> bool:
        """Whether `action` would make what is there already; only told of what many resources share."""
        match action:
            case MakeExchange(exchange):
                found = self._exchanges.get(exchange.name)
                return found is not None and is_exchange_as_wanted(found, exchange)
            case MakeBinding(binding):
                known = self._bindings.get(binding.queue, ())
                return any(_is_made_by(done=action, found=each) for each in known)
            case MakeQueue(queue):
                there = self._queues.get(queue.name)
                return there is not None and is_as_wanted(there, queue)
            case _:
                return False

    def apply(self, done: Action, properties_key: str | None) -> None:
        """Note what was done; `properties_key` is that of a binding that was made."""
        match done:
            case MakeExchange(exchange):
                policy = matching_policy(exchange.name, "exchange", self.view)
                self._exchanges[exchange.name] = ObservedExchange(
                    exchange.name, exchange.kind, durable=True, policy=policy
                )
            case MakeQueue(queue):
                self._show(queue.name)
                policy = matching_policy(queue.name, "queue", self.view)
                made = ObservedQueue(queue.name, queue.arguments, durable=True, messages=0, policy=policy)
                there = self._queues.get(queue.name, made)
                self._queues[queue.name] = replace(made, messages=there.messages)
            case MakeBinding(binding, owner, installation):
                others = [
                    each
                    for each in self._bindings.get(binding.queue, ())
                    if not _is_made_by(done=done, found=each)
                ]
                made_binding = ObservedBinding(binding, properties_key or "", owner, installation)
                self._bindings[binding.queue] = ordered([*others, made_binding])
            case RemoveBinding(binding, key):
                self._keep_bindings(
                    binding.queue, lambda each: (each.binding, each.properties_key) != (binding, key)
                )
            case RemoveQueue(name):
                self._show(name)
                self._queues.pop(name, None)
                self._bindings.pop(name, None)
            case RemoveExchange(name):
                self._exchanges.pop(name, None)
                for bound in list(self._bindings):
                    self._keep_bindings(bound, lambda each: each.binding.exchange != name)
            case MakeUser() | RemoveUser() | RevokePermissions():
                self._apply_to_users(done)
            case _:
                assert_never(done)

    def _apply_to_users(self, done: MakeUser | RemoveUser | RevokePermissions) -> None:
        if self._users is None:
            return
        match done:
            case MakeUser(name, password, permissions):
                kept = passwords.hashed(password, secrets.token_bytes(4))
                self._users[name] = ObservedUser(name, kept, passwords.SHA256, permissions)
            case RemoveUser(name):
                self._users.pop(name, None)
            case RevokePermissions(name):
                if name in self._users:
                    self._users[name] = replace(self._users[name], permissions=None)
            case _:
                assert_never(done)

    def _show(self, queue: str) -> None:
        """A queue is as it was made or gone, whatever the broker told of it before."""
        if queue in self.view.hidden_queues:
            self.view = replace(self.view, hidden_queues=self.view.hidden_queues - {queue})

    def _keep_bindings(self, queue: str, is_kept: Callable[[ObservedBinding], bool]) -> None:
        kept = tuple(each for each in self._bindings.get(queue, ()) if is_kept(each))
        if kept:
            self._bindings[queue] = kept
        else:
            self._bindings.pop(queue, None)


def _is_made_by(*, done: MakeBinding, found: ObservedBinding) -> bool:
    made = (done.binding, done.owner, done.installation)
    return (found.binding, found.owner, found.installation) == made

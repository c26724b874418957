"""The virtual hosts that relays use, each opened once for all that enter it by the same credentials."""

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from outbox_operator.allowed_hosts import AllowedHosts
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.management import Timeouts
from outbox_operator.broker.vhost import Vhost
from outbox_operator.faults import Faults

__all__ = ["Vhost", "Vhosts"]


@dataclass(slots=True)
class _Opened:
    """A virtual host that is watched."""

    vhost: Vhost
    watch: "asyncio.Task[None]"
    users: set[str] = field(default_factory=set)

    async def close(self) -> None:
        self.watch.cancel()
        await asyncio.wait([self.watch])
        await self.vhost.close()


class Vhosts:
    """All of them."""

    def __init__(
        self,
        *,
        on_change: Callable[[Vhost], None],
        on_call: Callable[[str, str], None],
        write_seconds: Callable[[], float] = lambda: math.inf,
        drift_seconds: float = 30.0,
        timeouts: Timeouts | None = None,
        faults: Faults | None = None,
        allowed: AllowedHosts | None = None,
    ) -> None:
        """`on_change` is called when a look at one found something else than what was known.

        `on_call` is told of each call its method, and the status it was answered with or `unreachable`.
        `write_seconds` is asked before each call that writes how long it may take, 0 if it must not be made.
        """
        self._on_change = on_change
        self._on_call = on_call
        self._write_seconds = write_seconds
        self._drift_seconds = drift_seconds
        self._timeouts = timeouts
        self._opened: dict[BrokerAccess, _Opened] = {}
        self._used: dict[str, _Opened] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._faults = faults or Faults()
        self._allowed = allowed

    async def run(self) -> None:
        """Wait until cancelled, then close all."""
        try:
            await asyncio.Event().wait()
        finally:
            await self.close()

    async def use(self, user: str, access: BrokerAccess) -> Vhost:
        """The virtual host for `user`, the path of a relay, in place of what it used before.

        Its state is known when this returns.
        """
        before = self._used.get(user)
        if before and before.vhost.access == access:
            vhost = before.vhost
        else:
            opened = self._opened.get(access) or self._open(access)
            opened.users.add(user)
            self._used[user] = opened
            vhost = opened.vhost
            if before:
                await self._leave(before, user)
        if vhost.state is None:
            await vhost.look()
        return vhost

    def of(self, user: str) -> Vhost | None:
        """What `user` uses."""
        opened = self._used.get(user)
        return opened.vhost if opened else None

    async def release(self, user: str) -> None:
        """Forget `user`; a virtual host without users is closed."""
        if opened := self._used.pop(user, None):
            await self._leave(opened, user)

    async def close(self) -> None:
        """Close all."""
        for user in list(self._used):
            await self.release(user)
        if self._closing:
            await asyncio.wait(self._closing)

    def _open(self, access: BrokerAccess) -> _Opened:
        vhost = Vhost(
            access,
            on_change=self._on_change,
            on_call=self._on_call,
            write_seconds=self._write_seconds,
            drift_seconds=self._drift_seconds,
            timeouts=self._timeouts,
            faults=self._faults,
            allowed=self._allowed,
        )
        # Begun anew if it ends: a virtual host that nobody watches looks well for ever.
        watch = asyncio.create_task(
            self._faults.keep_running("broker", vhost.watch), name=f"watch {access.vhost_id}"
        )
        self._opened[access] = opened = _Opened(vhost, watch)
        return opened

    async def _leave(self, opened: _Opened, user: str) -> None:
        opened.users.discard(user)
        if opened.users:
            return
        del self._opened[opened.vhost.access]
        # In a task of ours: it has to be closed also where whoever left is cancelled meanwhile.
        closing = asyncio.create_task(opened.close(), name=f"close {opened.vhost.access.vhost_id}")
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)
        await asyncio.wait([closing])

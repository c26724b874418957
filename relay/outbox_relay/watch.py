"""When a relay looks at its table: at short intervals while messages flow, woken by a notification otherwise.

An emitter notifies only while a relay sleeps: docs/wake-up.md has the protocol, and why it misses
nothing. One relay of a table at a time, the one on duty, serves it this way. The others stand by: they help
when they are called, and take over when the one on duty is gone.
"""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from outbox.schema import ASLEEP_LOCK, DUTY_LOCK
from outbox.table import TableName, quote_literal
from outbox_core.echo import CONTROL_PREFIX
from outbox_core.listening import Listening
from outbox_relay.claims import Claims
from outbox_relay.settings import Settings
from outbox_relay.wake import Wake, WakeReason

_log = logging.getLogger("outbox.relay")

GATHER_SECONDS = 0.004
"""The interval of looks while messages flow, in which some gather for one batch."""

_QUIET_LOOKS = 3
"""How many looks in a row find nothing before the relay falls asleep."""

_EMITTING_SECONDS = 0.1
"""The longest interval while a transaction that has emitted keeps the relay from falling asleep."""

_BUSY_BATCHES = 16
"""How many batches in close succession before the relay stays awake."""
_CLOSE_SECONDS = 0.01

_MANY_ROWS = 50
"""A batch of so many shows that messages flow."""

_CONTENDED_SECONDS = 0.5
"""How soon to look again at rows that somebody else has locked: that may be a relay which is dying."""

_TURN_SECONDS = 0.05
"""How long a lane with an open transaction waits to be the one that watches."""

_BEAT_SECONDS = 24.0
"""How often an idle relay asks whether it is on duty, and the server whether the relay is there."""
_FIRST_BEAT_SECONDS = 1.0
"""The same shortly after something was due."""
_HELP_SECONDS = 1.0
"""How often the others are called at most."""

_FROZEN_SECONDS = 60
"""How long the server keeps the session of a relay on duty that says nothing: its process may be frozen."""

_STEP_SECONDS = 0.25

_IDLE_SECONDS = 15.0

Look = Callable[[], Awaitable[Any]]


class Watch:
    """What the lanes of one relay know together about when to look at the table."""

    def __init__(self, settings: Settings, look_sql: str, claims: Claims, wake: Wake) -> None:
        """`look_sql` is the query that tells whether and when something is due."""
        self._claims = claims
        self.unswept = asyncio.Event()
        """Set at each look at the table, and when the relay falls asleep."""
        self._wake = wake
        self._deaf_seconds = settings.poll_interval
        self._seconds = settings.notification_timeout
        self._channel = quote_literal(settings.channel)
        table = self._table = TableName.parse(settings.table_name)
        self._help = f"{CONTROL_PREFIX}help {table.name}"
        self._handover = f"{CONTROL_PREFIX}handover {table.name}"
        oid = f"{quote_literal(table.sql)}::regclass::oid::int4"
        self._asleep_key = f"{ASLEEP_LOCK}, {oid}"
        self._beat_sql = (
            f"SELECT is_due, pg_catalog.pg_try_advisory_lock({DUTY_LOCK}, {oid}) AS is_on_duty, "  # noqa: S608 - ours
            f"pg_catalog.set_config('idle_session_timeout', '{_FROZEN_SECONDS}s', false) "
            f"FROM ({look_sql}) AS look"
        )
        self.listening: Listening | None = None
        """Where notifications are heard, and whose session holds the locks; None where nobody listens."""
        self._asleep_in: object | None = None
        self._duty_in: object | None = None
        self._turn = asyncio.Lock()
        self._empty_looks = 0
        self._looked_at = 0.0
        self._found_at = 0.0
        self._batches = 0
        self._beat_now = asyncio.Event()
        self._beat_seconds = _BEAT_SECONDS
        self._beat_at = 0.0
        self._called_at = 0.0
        self._late_check: asyncio.TimerHandle | None = None
        self._is_leaving = False

    @property
    def session(self) -> object | None:
        """The session that hears notifications, if there is one."""
        return self.listening.session if self.listening is not None else None

    @property
    def is_asleep(self) -> bool:
        """Whether whoever emits from now on notifies."""
        return self._asleep_in is not None and self._asleep_in is self.session

    @property
    def is_on_duty(self) -> bool:
        """Whether this relay is the one that sleeps and wakes."""
        return self._duty_in is not None and self._duty_in is self.session

    def is_idle(self) -> bool:
        """Whether no lane has looked at the table for a while."""
        return time.monotonic() - self._looked_at > _IDLE_SECONDS

    @property
    def _stands_by(self) -> bool:
        return self.session is not None and not self.is_on_duty

    # -- what is heard

    def heard(self, _payload: str) -> None:
        """Something is due soon."""
        if self.is_asleep:
            self._wake.up("notify")
        elif self._stands_by:
            self._check_later()

    def controlled(self, payload: str) -> None:
        """Another relay has called."""
        if payload == self._help and self._stands_by:
            self._beat_seconds = _FIRST_BEAT_SECONDS
            self._wake.up("help")
        elif payload == self._handover and not self._is_leaving:
            self._beat_now.set()

    def changed(self) -> None:
        """LISTEN was lost, or has come back."""
        if self.session is None:
            self._wake.up("lost")
        self._empty_looks = 0
        self._beat_now.set()

    def _check_later(self) -> None:
        """Look whether the relay on duty does its work, a second after something was to be done."""
        if self._late_check is None:
            delay = random.uniform(0.5, 1.5)  # noqa: S311 - jitter, no secret
            self._late_check = asyncio.get_running_loop().call_later(delay, self._check)

    def _check(self) -> None:
        self._late_check = None
        if self._stands_by:
            self._wake.up("late")

    # -- what lanes do

    def looks(self) -> None:
        """A lane looks at the table now."""
        self._looked_at = time.monotonic()
        self.unswept.set()

    async def claimed(self, rows: int, *, is_full: bool) -> None:
        """A lane has claimed and settled so many rows."""
        if not rows:
            self._empty_looks += 1
            self._wake.replan()
            return
        now = time.monotonic()
        is_close = now - self._found_at < _CLOSE_SECONDS
        self._found_at = now
        self._batches = self._batches + 1 if is_close else 0
        self._empty_looks = 0
        if self.is_asleep and (is_full or rows >= _MANY_ROWS or self._batches >= _BUSY_BATCHES):
            await self._stay_awake()
        if is_full and self.is_on_duty:
            await self._call()
        self._wake.replan()

    async def reason(self, look: Look, roll_back: Look) -> WakeReason:
        """Wait for a reason to look at the table; one lane at a time watches for all of them.

        `look` runs the query of that name on the lane's connection, and ends its transaction; so does
        `roll_back`.
        """
        try:
            async with asyncio.timeout(_TURN_SECONDS):
                await self._turn.acquire()
        except TimeoutError:
            await roll_back()
            await self._turn.acquire()
        try:
            while True:
                reason = await self._next(look, roll_back)
                if reason != "replan":
                    return reason
        finally:
            self._turn.release()

    async def _next(self, look: Look, roll_back: Look) -> WakeReason:
        if self.is_on_duty and not self.is_asleep and self._empty_looks >= _QUIET_LOOKS:
            await self._fall_asleep()
        if not self.is_asleep and not self._stands_by:
            return await self._flowing(look, roll_back)
        reason = await self._wake.sleep(None, GATHER_SECONDS)
        return await self._resting(look) if reason == "poll" else reason

    async def _resting(self, look: Look) -> WakeReason:
        # After the lock was taken: what others have committed without a notification is seen here.
        row = await look()
        if row is None:
            return "lost"
        if row["is_due"] and not self._empty_looks:
            return "more"
        timer = row["next_seconds"]
        if row["is_due"]:
            reason = await self._wake.sleep(timer, min(self._seconds, _CONTENDED_SECONDS))
            return "locked" if reason == "poll" else reason
        if self._stands_by:
            return await self._wake.sleep(None, None)
        if not self.is_asleep:
            return "replan"
        return await self._wake.sleep(timer, self._seconds)

    async def _flowing(self, look: Look, roll_back: Look) -> WakeReason:
        """Look again after an interval, which grows while nothing comes."""
        longest = _EMITTING_SECONDS if self.is_on_duty else self._deaf_seconds
        excess = min(max(0, self._empty_looks - _QUIET_LOOKS), 32)
        interval = GATHER_SECONDS * 2**excess
        timer: float | None = None
        if excess:
            row = await look() if interval > _EMITTING_SECONDS else await roll_back()
            if row is not None:
                timer = row["next_seconds"]
                longest = min(longest, _CONTENDED_SECONDS) if row["is_due"] else longest
        left = max(0.0, self._looked_at + min(interval, longest) - time.monotonic())
        reason = await self._wake.sleep(timer, left)
        if reason == "poll" and (self.is_on_duty or interval < longest):
            return "flow"
        return reason

    # -- the locks

    async def _fall_asleep(self) -> None:
        """Have whoever emits notify from now on, if nobody is about to commit without."""
        session = self.session
        row = await self._ask(f"SELECT pg_catalog.pg_try_advisory_lock({self._asleep_key}) AS is_held")
        if row is not None and row["is_held"]:
            self._asleep_in = session
            self.unswept.set()

    async def _stay_awake(self) -> None:
        """Have nobody notify, as the table is looked at all the time."""
        self._asleep_in = None
        self._batches = 0
        await self._ask(f"SELECT pg_catalog.pg_advisory_unlock({self._asleep_key})")

    async def _call(self) -> None:
        """Call the relays that stand by: there is more to do than one does at once."""
        if time.monotonic() - self._called_at >= _HELP_SECONDS:
            self._called_at = time.monotonic()
            await self._ask(f"SELECT pg_catalog.pg_notify({self._channel}, {quote_literal(self._help)})")

    async def _ask(self, sql: str, *arguments: Any) -> Any:
        return await self.listening.ask(sql, *arguments) if self.listening is not None else None

    # -- duty

    async def run(self) -> None:
        """Get on duty when nobody else is; until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_STEP_SECONDS if self.is_on_duty else self._until_beat()):
                    await self._beat_now.wait()
            if self._is_leaving or self.session is None:
                self._beat_now.clear()
                await asyncio.sleep(_STEP_SECONDS)
                continue
            if self.is_on_duty and not self._turn.locked() and self._looks_overdue():
                await self._call()
            if self._beat_now.is_set() or not self._until_beat():
                self._beat_now.clear()
                await self._beat()

    def _looks_overdue(self) -> bool:
        return time.monotonic() - self._looked_at > _HELP_SECONDS

    def _until_beat(self) -> float:
        return max(0.0, self._beat_at - time.monotonic())

    async def _beat(self) -> None:
        session = self.session
        if self.is_on_duty:
            await self._ask("SELECT")
            self._beat_seconds = _BEAT_SECONDS
        elif (row := await self._ask(self._beat_sql, *self._claims.positions())) is not None:
            if row["is_on_duty"]:
                self._duty_in = session
                self._empty_looks = 0
                _log.debug("on duty for table %s", self._table)
                self._wake.replan()
                self._wake.up("notify")
            elif row["is_due"]:
                self._beat_seconds = _FIRST_BEAT_SECONDS
                self._wake.up("late")
            else:
                self._beat_seconds = min(self._beat_seconds * 2, _BEAT_SECONDS)
        self._beat_at = time.monotonic() + self._beat_seconds * random.uniform(0.8, 1.0)  # noqa: S311

    async def leave(self) -> None:
        """The relay stops: let another one be on duty."""
        self._is_leaving = True
        if self.session is not None:
            handover = f"pg_catalog.pg_notify({self._channel}, {quote_literal(self._handover)})"
            self._asleep_in = self._duty_in = None
            await self._ask(f"SELECT pg_catalog.pg_advisory_unlock_all(), {handover}")

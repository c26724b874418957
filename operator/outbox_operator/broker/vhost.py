"""A virtual host: one picture of it for all who use it, kept up to date by looking and by what is done."""

import asyncio
import math
import random
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import TypeAlias, TypeVar

from outbox_core.backoff import Backoff
from outbox_operator.allowed_hosts import AllowedHosts
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import Action, MakeBinding, MakeExchange, MakeQueue, MakeUser, RemoveUser
from outbox_operator.broker.identity import ClusterIdentity, VhostIdentity
from outbox_operator.broker.live_snapshot import LiveSnapshot
from outbox_operator.broker.management import Management, ManagementError, Timeouts
from outbox_operator.broker.snapshot import BrokerProblem, Reason, Snapshot
from outbox_operator.faults import Faults

T = TypeVar("T")
State: TypeAlias = Snapshot | BrokerProblem

_ACTIONS_AT_ONCE = 11
"""Less than the calls that go at once, so that a look never waits for a queue of actions."""

_PROBES = Backoff(0.5, 5.0, jitter=0.1)
"""Between looks at a broker that is away: what waits for it should not wait much longer than it is away."""

_REFUSALS = Backoff(1.0, 300.0)
"""Between looks at a broker that does not let us in: somebody has to do something first."""

_DENIALS = Backoff(1.0, 24.0)
"""Between looks at a virtual host that we may not enter: one that was deleted and made again has lost the
permissions, and nobody tells us when they are given again."""

_SOON_OVER = frozenset({Reason.UNREACHABLE, Reason.VHOST_MISSING})
"""Problems that end without a word to us: a broker starts, or somebody makes the virtual host again."""

_DRIFT_JITTER = 0.1
_OF_THE_VHOST = frozenset({Reason.UNREACHABLE, Reason.AUTHENTICATION_FAILED, Reason.VHOST_MISSING})
"""Problems that all actions would have."""

_CLOSED = BrokerProblem(Reason.UNREACHABLE, "the credentials for this broker were replaced meanwhile")
_FAILED = BrokerProblem(
    Reason.INTERNAL_ERROR,
    "the operator failed at what the broker answered, and tries again; its log has the error. See that "
    "spec.broker.managementUrl is the management API of RabbitMQ",
)


class Vhost:
    """A virtual host as one user sees it."""

    def __init__(
        self,
        access: BrokerAccess,
        *,
        on_change: Callable[["Vhost"], None],
        on_call: Callable[[str, str], None],
        write_seconds: Callable[[], float] = lambda: math.inf,
        drift_seconds: float = 30.0,
        timeouts: Timeouts | None = None,
        faults: Faults | None = None,
        allowed: AllowedHosts | None = None,
    ) -> None:
        """`on_change` is called when a look finds something else than what was known.

        `write_seconds` is asked before each call that writes how long it may take, 0 if it must not be made:
        a plan may be half done when another replica takes over.
        """
        self.access = access
        """Where it is, and who we are."""
        self._management = Management(
            access, on_call=on_call, timeouts=timeouts, write_seconds=write_seconds, allowed=allowed
        )
        self._on_change = on_change
        self._faults = faults or Faults()
        self._drift_seconds = drift_seconds
        self._known: LiveSnapshot | BrokerProblem | None = None
        self._cluster: ClusterIdentity | None = None
        self._was_entered = False
        self._look: asyncio.Task[State] | None = None
        self._done_during_look: list[tuple[Action, str | None]] = []
        self._under_way: dict[Action, asyncio.Task[BrokerProblem | None]] = {}
        self._slots = asyncio.Semaphore(_ACTIONS_AT_ONCE)
        self._doubt = asyncio.Event()
        self._is_closed = False

    @property
    def state(self) -> State | None:
        """What is known now, with what was done since the last look; None before the first."""
        return self._known.view if isinstance(self._known, LiveSnapshot) else self._known

    @property
    def identity(self) -> VhostIdentity:
        """Which virtual host it is, by the last answer of its cluster."""
        return VhostIdentity(self.access.vhost_id, self._cluster)

    @property
    def was_entered(self) -> bool:
        """Whether it has let this user in, if only once."""
        return self._was_entered

    async def look(self) -> State:
        """Look now; who asks while somebody looks gets the same answer."""
        if self._is_closed:
            return _CLOSED
        if self._look is None:
            self._look = asyncio.create_task(self._looking(), name=f"look at {self.access.vhost_id}")
        return await _outcome(self._look)

    async def perform(self, actions: Sequence[Action]) -> BrokerProblem | None:
        """Do all of this in order, or as much as goes well; what can go at once does.

        What is there already is not made again, and what somebody else is just doing is waited for.
        """
        if self._is_closed:
            return _CLOSED
        for step in _steps(actions):
            tasks = [self._begun(action) for action in step if not self._shows(action)]
            problems = [problem for task in tasks if (problem := await _outcome(task))]
            if problems:
                return problems[0]
        return None

    async def watch(self) -> None:
        """Look every now and then, and soon where there is doubt, until cancelled."""
        failures, hurries, reason = 0, 0, ""
        while True:
            self._doubt.clear()
            state = await self.look()
            if isinstance(state, BrokerProblem):
                failures = failures + 1 if state.reason == reason else 1
                reason = state.reason
                seconds = retry_seconds(reason, failures)
            else:
                # A queue is hidden while its members elect a leader, and longer if too many are away.
                failures, reason = (failures + 1 if state.hidden_queues and not reason else 0), ""
                seconds = self._drift_seconds * random.uniform(1 - _DRIFT_JITTER, 1 + _DRIFT_JITTER)  # noqa: S311
                if state.hidden_queues:
                    seconds = min(seconds, _PROBES.delay(max(failures, 1)))
            hurries = hurries + 1 if await self._is_doubtful_within(seconds) else 0
            if hurries:
                await asyncio.sleep(_PROBES.delay(hurries))

    async def close(self) -> None:
        """End what is under way, and close the connections."""
        self._is_closed = True
        tasks = [*self._under_way.values(), *([self._look] if self._look else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._management.close()

    async def _looking(self) -> State:
        known: LiveSnapshot | BrokerProblem = _FAILED
        try:
            with self._faults.contained("broker", str(self.access.vhost_id)):
                known = await self._seen()
        finally:
            self._done_during_look.clear()
            self._look = None
        return self._now(known)

    async def _seen(self) -> LiveSnapshot | BrokerProblem:
        try:
            seen = await self._management.snapshot()
        except ManagementError as error:
            return error.problem
        self._was_entered = True
        self._cluster = seen.cluster or self._cluster
        known = LiveSnapshot(seen)
        # The listings may be from before these.
        for action, properties_key in self._done_during_look:
            known.apply(action, properties_key)
        return known

    def _now(self, known: LiveSnapshot | BrokerProblem) -> State:
        state: State = known.view if isinstance(known, LiveSnapshot) else known
        is_news = state != self.state
        self._known = known
        if is_news:
            with self._faults.contained("broker", str(self.access.vhost_id)):
                self._on_change(self)
        return state

    def _shows(self, action: Action) -> bool:
        return isinstance(self._known, LiveSnapshot) and self._known.shows(action)

    def _begun(self, action: Action) -> "asyncio.Task[BrokerProblem | None]":
        # A task of ours: whoever began it may go away while others wait for it.
        if action not in self._under_way:
            self._under_way[action] = asyncio.create_task(self._doing(action))
        return self._under_way[action]

    async def _doing(self, action: Action) -> BrokerProblem | None:
        problem: BrokerProblem | None = _FAILED
        properties_key: str | None = None
        try:
            async with self._slots:
                if isinstance(self._known, BrokerProblem) and not _is_elsewhere(action, self._known):
                    # Hundreds of actions would each wait for their own timeout.
                    return self._known
                with self._faults.contained("broker", str(self.access.vhost_id)):
                    problem, properties_key = await self._performed(action)
        finally:
            del self._under_way[action]
        if problem is not None:
            self._failed(problem)
            return problem
        if self._look is not None:
            self._done_during_look.append((action, properties_key))
        if isinstance(self._known, LiveSnapshot):
            self._known.apply(action, properties_key)
        return None

    async def _performed(self, action: Action) -> tuple[BrokerProblem | None, str | None]:
        """Why an action failed, or the properties key of a binding that it made."""
        try:
            return None, await self._management.perform(action)
        except ManagementError as error:
            return error.problem, None

    def _failed(self, problem: BrokerProblem) -> None:
        if problem.reason in _OF_THE_VHOST:
            self._now(problem)
        if problem.reason in _OF_THE_VHOST or problem.reason == Reason.REFUSED:
            # It was planned by what is known, which is not so, then.
            self._doubt.set()

    async def _is_doubtful_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._doubt.wait()
        except TimeoutError:
            return False


def retry_seconds(reason: str, failures: int) -> float:
    """How long to wait after a look that failed for this reason so many times in a row."""
    if reason == Reason.PERMISSION_DENIED:
        return _DENIALS.delay(failures)
    return (_PROBES if reason in _SOON_OVER else _REFUSALS).delay(failures)


def _is_elsewhere(action: Action, problem: BrokerProblem) -> bool:
    """Whether an action does not need the virtual host that is missing: users are the broker's."""
    return isinstance(action, RemoveUser) and problem.reason == Reason.VHOST_MISSING


def _steps(actions: Sequence[Action]) -> Iterator[tuple[Action, ...]]:
    """Things of one kind that are made may be made at once; what is removed goes one after the other."""
    for kind, same in groupby(actions, type):
        if kind in (MakeExchange, MakeQueue, MakeBinding, MakeUser):
            yield tuple(same)
        else:
            yield from ((action,) for action in same)


async def _outcome(task: "asyncio.Task[T]") -> T | BrokerProblem:
    """What a shared task results in; it goes on where the one who waits is cancelled."""
    await asyncio.wait([task])
    return _CLOSED if task.cancelled() else task.result()

"""One picture of a virtual host for all who use it, on a real RabbitMQ."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from urllib.parse import quote

import pytest

from outbox.topology import Binding, Exchange, Queue, Subscription, topology
from outbox_cli.local import Services, start
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import MakeBinding, MakeExchange, MakeQueue, RemoveExchange, RemoveQueue
from outbox_operator.broker.removal_plan import tier_removal, unused_tiers
from outbox_operator.broker.snapshot import BrokerProblem, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.broker.vhost import Vhost
from outbox_operator.broker.vhosts import Vhosts
from outbox_operator.faults import Faults
from tests.integration.administrator import management
from tests.integration.broker_access import Counter, Gate, access_to
from tests.integration.relaying import until

RARELY = 3600.0
"""Seconds between looks: within a test, only when asked to."""

TIERS = (timedelta(seconds=1), timedelta(seconds=10))
TIER_NAMES = ("outbox.delay_10s", "outbox.delay_1s")
QUORUM = (("x-queue-type", "quorum"),)


@pytest.fixture
def access(services: Services, rabbitmq_url: str) -> BrokerAccess:
    return access_to(services, rabbitmq_url)


class Changes:
    """Counts what it is told of virtual hosts."""

    def __init__(self) -> None:
        self.states: list[Snapshot | BrokerProblem | None] = []

    def __call__(self, vhost: Vhost) -> None:
        self.states.append(vhost.state)

    def __len__(self) -> int:
        return len(self.states)


@asynccontextmanager
async def opened(
    access: BrokerAccess, changes: Changes | None = None, counter: Counter | None = None
) -> AsyncIterator[Vhost]:
    """A virtual host that is looked at when somebody asks."""
    told = Changes() if changes is None else changes
    vhost = Vhost(access, on_change=told, on_call=counter or Counter())
    try:
        yield vhost
    finally:
        await vhost.close()


@asynccontextmanager
async def running(changes: Changes, counter: Counter, drift_seconds: float = RARELY) -> AsyncIterator[Vhosts]:
    """Virtual hosts that are watched; all of their tasks end with the block."""
    before = asyncio.all_tasks()
    vhosts = Vhosts(on_change=changes, on_call=counter, drift_seconds=drift_seconds)
    task = asyncio.create_task(vhosts.run())
    try:
        yield vhosts
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert asyncio.all_tasks() == before


def wanted(number: int) -> Subscription:
    return Subscription(f"shop.mail{number}", ("user.created",), TIERS)


async def reconcile(vhost: Vhost, number: int) -> BrokerProblem | None:
    """What a listener does."""
    state = vhost.state or await vhost.look()
    assert isinstance(state, Snapshot)
    plan = topology_actions(topology("outbox", [wanted(number)]), f"shop/mail{number}", state)
    assert plan.conflicts == ()
    return await vhost.perform(plan.actions)


def problem(state: object) -> BrokerProblem:
    assert isinstance(state, BrokerProblem)
    return state


def seen(state: object) -> Snapshot:
    assert isinstance(state, Snapshot)
    return state


# -- doing


async def test_many_who_want_the_same_tiers_at_once_make_them_once(access: BrokerAccess) -> None:
    counter = Counter()
    async with opened(access, counter=counter) as vhost:
        await vhost.look()
        assert await asyncio.gather(*(reconcile(vhost, number) for number in range(20))) == [None] * 20
        # The two exchanges, two tiers of an exchange and a queue each, and two queues a listener.
        assert counter.of("PUT") == 2 + 2 * 2 + 2 * 20
        # A binding of each tier, and two a listener.
        assert counter.of("POST") == 2 + 2 * 20
        known = seen(vhost.state)
        assert await vhost.look() == known


async def test_who_comes_later_with_an_old_plan_makes_nothing_twice(access: BrokerAccess) -> None:
    counter = Counter()
    async with opened(access, counter=counter) as vhost:
        plan = topology_actions(topology("outbox", [wanted(1)]), "shop/mail1", seen(await vhost.look()))
        await vhost.perform(plan.actions)
        calls = len(counter.calls)
        assert await vhost.perform(plan.actions) is None
        assert len(counter.calls) == calls


async def test_what_was_done_is_known_at_once(access: BrokerAccess) -> None:
    changes, counter = Changes(), Counter()
    async with opened(access, changes, counter) as vhost:
        await vhost.look()
        await reconcile(vhost, 1)
        calls = len(counter.calls)
        state = seen(vhost.state)
        assert topology_actions(topology("outbox", [wanted(1)]), "shop/mail1", state).actions == ()
        assert len(counter.calls) == calls
        assert len(changes) == 1


async def test_what_is_done_during_a_look_does_not_look_undone(access: BrokerAccess) -> None:
    async with Gate(access).serving() as gate, opened(gate.access) as vhost:
        await vhost.look()
        await vhost.perform([MakeExchange(Exchange("old", "topic"))])
        gate.close()
        look = asyncio.create_task(vhost.look())
        await until(lambda: gate.held == 7, lambda: f"7 listings on their way, not {gate.held}")
        await vhost.perform([MakeExchange(Exchange("new", "topic")), RemoveExchange("old")])
        gate.open()
        assert set(seen(await look).exchanges) == {"new"}
        assert set(seen(vhost.state).exchanges) == {"new"}


async def test_those_who_look_at_once_share_one_look(access: BrokerAccess) -> None:
    counter = Counter()
    async with opened(access, counter=counter) as vhost:
        states = await asyncio.gather(*(vhost.look() for _ in range(50)))
        assert len(counter.calls) == 10
        assert all(state is vhost.state for state in states)


async def test_what_one_has_begun_goes_on_when_it_goes_away(access: BrokerAccess) -> None:
    async with Gate(access).serving() as gate, opened(gate.access) as vhost:
        await vhost.look()
        gate.close()
        first, second = asyncio.create_task(vhost.look()), asyncio.create_task(vhost.look())
        await until(lambda: gate.held == 7, "7 listings on their way")
        first.cancel()
        await asyncio.wait([first])
        gate.open()
        assert isinstance(await second, Snapshot)


async def test_actions_go_in_their_order_and_stop_where_one_fails(access: BrokerAccess) -> None:
    async with opened(access) as vhost:
        await vhost.look()
        binding = Binding("missing", "mails", "a")
        refused = await vhost.perform(
            [
                MakeExchange(Exchange("outbox", "topic")),
                MakeQueue(Queue("mails", QUORUM)),
                MakeBinding(binding, "shop/mail"),
                RemoveQueue("mails", if_empty=False),
            ]
        )
        assert problem(refused).reason == "Refused"
        state = seen(await vhost.look())
        assert set(state.exchanges) == {"outbox"}
        assert set(state.queues) == {"mails"}


async def test_tiers_go_when_nobody_needs_them(access: BrokerAccess) -> None:
    async with opened(access) as vhost:
        await vhost.look()
        await reconcile(vhost, 1)
        assert unused_tiers("outbox", TIER_NAMES, seen(vhost.state)) == ()
        unused = unused_tiers("outbox", (), seen(vhost.state))
        assert unused == TIER_NAMES
        for tier in unused:
            assert await vhost.perform(tier_removal(tier, seen(vhost.state))) is None
        assert set(seen(await vhost.look()).queues) == {"shop.mail1", "shop.mail1.dlq"}
        await vhost.perform([RemoveQueue(name, if_empty=True) for name in ("shop.mail1", "shop.mail1.dlq")])
        assert seen(await vhost.look()).queues == {}


# -- watching


async def test_a_queue_removed_by_hand_is_missed_at_the_next_look(
    access: BrokerAccess, services: Services
) -> None:
    changes = Changes()
    async with opened(access, changes) as vhost:
        await vhost.look()
        await reconcile(vhost, 1)
        await vhost.look()
        assert len(changes) == 1
        path = f"queues/{access.vhost}/shop.mail1"
        await asyncio.to_thread(management, services, "DELETE", path)
        assert "shop.mail1" in seen(vhost.state).queues
        await vhost.look()
        assert len(changes) == 2
        assert "shop.mail1" not in seen(vhost.state).queues
        assert await reconcile(vhost, 1) is None
        assert "shop.mail1" in seen(await vhost.look()).queues


async def test_drift_is_found_without_anybody_asking(access: BrokerAccess, services: Services) -> None:
    changes = Changes()
    async with running(changes, Counter(), drift_seconds=0.05) as vhosts:
        vhost = await vhosts.use("shop/relay", access)
        assert len(changes) == 1
        path = f"exchanges/{access.vhost}/by-hand"
        await asyncio.to_thread(management, services, "PUT", path, {"type": "topic"})
        await until(lambda: len(changes) == 2, "the exchange to be told")
        assert set(seen(vhost.state).exchanges) == {"by-hand"}


async def test_a_refused_action_makes_it_look_again_soon(access: BrokerAccess, services: Services) -> None:
    changes = Changes()
    async with running(changes, Counter()) as vhosts:
        vhost = await vhosts.use("shop/relay", access)
        await reconcile(vhost, 1)
        path = f"queues/{access.vhost}/shop.mail1"
        await asyncio.to_thread(management, services, "DELETE", path)
        binding = MakeBinding(Binding("outbox", "shop.mail1", "user.moved"), "shop/mail1")
        assert problem(await vhost.perform([binding])).reason == "Refused"
        await until(lambda: "shop.mail1" not in seen(vhost.state).queues, "the queue to be missed")
        assert len(changes) == 2


async def test_relays_with_the_same_credentials_share_one_vhost_until_the_last_leaves(
    access: BrokerAccess,
) -> None:
    counter = Counter()
    async with running(Changes(), counter) as vhosts:
        first, second = await asyncio.gather(vhosts.use("shop/a", access), vhosts.use("shop/b", access))
        assert first is second is vhosts.of("shop/a") is await vhosts.use("shop/a", access)
        assert len(counter.calls) == 10
        await vhosts.release("shop/a")
        assert vhosts.of("shop/a") is None
        assert vhosts.of("shop/b") is second
        assert isinstance(await second.look(), Snapshot)
        await vhosts.release("shop/b")
        await vhosts.release("shop/b")
        assert vhosts.of("shop/b") is None


async def test_new_credentials_are_tried_at_once_in_place_of_the_old(access: BrokerAccess) -> None:
    changes = Changes()
    wrong = replace(access, password=access.password[::-1])
    async with running(changes, Counter()) as vhosts:
        before = await vhosts.use("shop/a", wrong)
        assert problem(before.state).reason == "AuthenticationFailed"
        after = await vhosts.use("shop/a", access)
        assert isinstance(after.state, Snapshot)
        assert vhosts.of("shop/a") is after
        assert [type(state) for state in changes.states] == [BrokerProblem, Snapshot]


async def test_who_waits_for_a_vhost_that_is_left_is_told(access: BrokerAccess) -> None:
    async with Gate(access).serving() as gate, running(Changes(), Counter()) as vhosts:
        vhost = await vhosts.use("shop/a", gate.access)
        gate.close()
        look = asyncio.create_task(vhost.look())
        await until(lambda: gate.held == 7, "7 listings on their way")
        await vhosts.release("shop/a")
        assert problem(await look).reason == "Unreachable"
        assert problem(await vhost.look()).reason == "Unreachable"
        action = MakeExchange(Exchange("late", "topic"))
        assert problem(await vhost.perform([action])).reason == "Unreachable"


async def test_a_fault_in_a_watch_is_counted_and_the_watch_goes_on(
    access: BrokerAccess, services: Services
) -> None:
    looks, parts = 0, list[str]()

    def fail(_: Vhost) -> None:
        nonlocal looks
        looks += 1
        raise RuntimeError("a fault of ours")

    vhosts = Vhosts(on_change=fail, on_call=Counter(), drift_seconds=0.02, faults=Faults(parts.append))
    run = asyncio.create_task(vhosts.run())
    vhost = await vhosts.use("shop/a", access)
    seen(vhost.state)
    path = f"exchanges/{quote(access.vhost, safe='')}/meanwhile"
    await asyncio.to_thread(management, services, "PUT", path, {"type": "topic"})
    await until(lambda: looks > 1, "another look, which finds that exchange")
    assert set(parts) == {"broker"}
    assert not run.done()
    run.cancel()
    await asyncio.wait([run])


# -- outages


async def test_a_broker_that_goes_and_comes_back_is_noticed_both_times() -> None:
    with start(postgres=False, environment={}, progress=lambda _: None) as services:
        access = access_to(services, f"{services.rabbitmq.url}%2F")
        changes, counter = Changes(), Counter()
        async with running(changes, counter) as vhosts:
            vhost = await vhosts.use("shop/a", access)
            await reconcile(vhost, 1)
            await asyncio.to_thread(services.rabbitmq.stop)
            assert isinstance(vhost.state, Snapshot)
            action = MakeExchange(Exchange("later", "topic"))
            assert problem(await vhost.perform([action])).reason == "Unreachable"
            # Known at once to all, who then do not each wait for it.
            known = problem(vhost.state)
            assert known.reason == "Unreachable"
            puts = counter.of("PUT")
            assert await vhost.perform([action]) == known
            assert counter.of("PUT") == puts
            await asyncio.to_thread(services.rabbitmq.start)
            await until(lambda: isinstance(vhost.state, Snapshot), lambda: f"a snapshot, not {vhost.state}")
            assert "shop.mail1" in seen(vhost.state).queues
            assert await vhost.perform([action]) is None
            assert isinstance(changes.states[0], Snapshot)
            assert isinstance(changes.states[1], BrokerProblem)
            assert isinstance(changes.states[-1], Snapshot)

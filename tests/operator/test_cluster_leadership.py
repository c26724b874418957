"""One of several leads, on a Lease of a real API server, with the rights to get, create and update it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import NotLeaderError
from outbox_operator.cluster.kinds import LEASE, path
from outbox_operator.cluster.leadership import Leadership, Timing
from tests.operator.control_plane.api import Api
from tests.operator.control_plane.bridge import bridge
from tests.operator.control_plane.identity import Identity, identity, rule
from tests.operator.control_plane.waiting import DEADLINE_SECONDS, until

_SHORT = Timing(
    lease_seconds=4, fence_seconds=3, renew_seconds=0.3, retry_seconds=0.1, look_seconds=0.1, call_seconds=2
)
# Only a Lease that is given back changes hands within a test.
_LONG = Timing(
    lease_seconds=600,
    fence_seconds=500,
    renew_seconds=0.3,
    retry_seconds=0.1,
    look_seconds=0.1,
    call_seconds=2,
)

# A candidate that answers each line of its input with what became of a write.
_CANDIDATE = """
import asyncio, sys
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import NotLeaderError
from outbox_operator.cluster.leadership import Leadership, Timing

async def main(namespace):
    connection = await Connection.open()
    timing = Timing(4, 3, 0.3, 0.1, 0.1, 2)
    leadership = Leadership(Cluster(connection), namespace, "operator", "child", timing)
    fenced = Cluster(connection, fence=leadership.fence)

    async def work():
        print("leading", flush=True)
        lines = asyncio.StreamReader()
        loop = asyncio.get_running_loop()
        await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        number = 0
        while await lines.readline():
            number += 1
            metadata = {"namespace": namespace, "generateName": "child."}
            about = {"namespace": namespace, "name": "child", "kind": "Pod"}
            try:
                await fenced.create({"apiVersion": "v1", "kind": "Event", "metadata": metadata,
                                     "involvedObject": about, "message": "written", "reason": "Test"})
                print("written", flush=True)
            except NotLeaderError:
                print("refused", flush=True)

    try:
        await leadership.lead(work)
    except NotLeaderError:
        print("lost", flush=True)
    await connection.close()

asyncio.run(main(sys.argv[1]))
"""

Candidate = Callable[..., Leadership]


@dataclass
class _Work:
    """What a leader does: it is begun and ended."""

    begun: asyncio.Event
    ended: asyncio.Event
    leave: asyncio.Event

    @classmethod
    def make(cls) -> "_Work":
        return cls(asyncio.Event(), asyncio.Event(), asyncio.Event())

    async def __call__(self) -> None:
        self.begun.set()
        try:
            await self.leave.wait()
        finally:
            self.ended.set()


@pytest.fixture
def operator(api: Api, namespace: str, tmp_path: Path) -> Identity:
    rights = (
        rule("coordination.k8s.io", "leases", "get create update"),
        rule("", "events", "create"),
    )
    return identity(api, namespace, tmp_path, {namespace: rights})


@pytest.fixture
async def connection(operator: Identity) -> AsyncIterator[Connection]:
    connection = await Connection.open({"KUBECONFIG": str(operator.kubeconfig)})
    yield connection
    await connection.close()


@pytest.fixture
def candidate(connection: Connection, namespace: str) -> Candidate:
    def make(identity: str, timing: Timing = _SHORT) -> Leadership:
        return Leadership(Cluster(connection), namespace, "operator", identity, timing)

    return make


@asynccontextmanager
async def _leading(
    leadership: Leadership, work: Callable[[], Awaitable[None]]
) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(leadership.lead(work))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            # Whoever expects it has looked.
            task.exception()


@asynccontextmanager
async def _child(operator: Identity, namespace: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        _CANDIDATE,
        namespace,
        env={**os.environ, "KUBECONFIG": str(operator.kubeconfig)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            process.send_signal(signal.SIGCONT)
        await process.communicate()


async def _says(process: asyncio.subprocess.Process, ask: str = "") -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(ask.encode())
    await process.stdin.drain()
    async with asyncio.timeout(DEADLINE_SECONDS):
        return (await process.stdout.readline()).decode().strip()


async def _soon(event: asyncio.Event, what: str) -> None:
    await until(what, event.is_set)


def _lease(api: Api, namespace: str) -> dict[str, Any]:
    return api.request("GET", path(LEASE, namespace, "operator"))


async def _renewed_since(api: Api, namespace: str, time: str) -> None:
    await until("the Lease is renewed", lambda: _lease(api, namespace)["spec"]["renewTime"] > time)


def _edit(api: Api, namespace: str, patch: dict[str, Any]) -> None:
    api.request("PATCH", path(LEASE, namespace, "operator"), patch, "application/merge-patch+json")


def test_a_standby_takes_over_within_15_seconds_and_30_calls_a_minute_hold_a_lease() -> None:
    timing = Timing()
    # The last renewal may be seen one look late, and its end another.
    assert timing.lease_seconds + 2 * timing.look_seconds < 15
    assert 60 / timing.renew_seconds <= 30
    assert 60 / timing.look_seconds <= 30


async def test_one_leads_and_the_next_takes_over_when_it_is_done(candidate: Candidate) -> None:
    first, second = _Work.make(), _Work.make()
    one, two = candidate("one", _LONG), candidate("two", _LONG)
    async with _leading(one, first) as leading:
        await _soon(first.begun, "the first leads")
        assert one.is_leader
        async with _leading(two, second):
            first.leave.set()
            await leading
            assert not one.is_leader
            await _soon(second.begun, "the second leads, as the Lease was given back")
            assert two.is_leader


async def test_a_lease_tells_who_holds_it_and_how_often_it_changed_hands(
    api: Api, namespace: str, candidate: Candidate
) -> None:
    for number, name in enumerate(("one", "two"), start=1):
        work = _Work.make()
        async with _leading(candidate(name), work):
            await _soon(work.begun, f"{name} leads")
            spec = _lease(api, namespace)["spec"]
            assert (spec["holderIdentity"], spec["leaseTransitions"]) == (name, number)
            assert spec["leaseDurationSeconds"] == 4
            await _renewed_since(api, namespace, spec["renewTime"])
    assert not _lease(api, namespace)["spec"].get("holderIdentity")


async def test_who_is_asked_to_stop_gives_the_lease_back_after_its_work_has_ended(
    api: Api, namespace: str, candidate: Candidate
) -> None:
    holders: list[str] = []
    begun = asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            holders.append(_lease(api, namespace)["spec"].get("holderIdentity", ""))

    async with _leading(candidate("one", _LONG), work) as leading:
        await _soon(begun, "it leads")
        leading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leading
    assert holders == ["one"]
    assert not _lease(api, namespace)["spec"].get("holderIdentity")


async def test_a_failure_of_the_work_is_the_leaders_and_gives_the_lease_back(
    api: Api, namespace: str, candidate: Candidate
) -> None:
    async def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await candidate("one", _LONG).lead(fail)
    assert not _lease(api, namespace)["spec"].get("holderIdentity")


async def test_the_standby_takes_over_after_a_kill_9(
    operator: Identity, namespace: str, candidate: Candidate
) -> None:
    work = _Work.make()
    async with _child(operator, namespace) as child:
        assert await _says(child) == "leading"
        async with _leading(candidate("standby"), work):
            assert await _says(child, "write\n") == "written"
            assert not work.begun.is_set()
            child.kill()
            await _soon(work.begun, "the standby leads, as nobody renews the Lease")


async def test_a_leader_that_was_frozen_writes_nothing_when_it_thaws(
    operator: Identity, namespace: str, candidate: Candidate
) -> None:
    work = _Work.make()
    async with _child(operator, namespace) as child:
        assert await _says(child) == "leading"
        assert await _says(child, "write\n") == "written"
        child.send_signal(signal.SIGSTOP)
        async with _leading(candidate("standby"), work):
            await _soon(work.begun, "the standby leads, as nobody renews the Lease")
            assert child.stdin is not None
            # It is asked before it can have noticed.
            child.stdin.write(b"write\n")
            await child.stdin.drain()
            child.send_signal(signal.SIGCONT)
            said = [await _says(child)]
            if said == ["refused"]:
                said.append(await _says(child))
            assert said[-1] == "lost"
            assert "written" not in said


async def test_a_leader_whose_lease_another_holds_stops_its_work(
    api: Api, namespace: str, candidate: Candidate
) -> None:
    work = _Work.make()
    leadership = candidate("one")
    async with _leading(leadership, work) as leading:
        await _soon(work.begun, "it leads")
        _edit(api, namespace, {"spec": {"holderIdentity": "another"}})
        with pytest.raises(NotLeaderError, match=f"Lease {namespace}/operator is lost: another holds it"):
            await leading
        assert work.ended.is_set()
        assert not leadership.is_leader
    assert _lease(api, namespace)["spec"]["holderIdentity"] == "another"


async def test_a_leader_whose_lease_was_deleted_stops_its_work(
    api: Api, namespace: str, candidate: Candidate
) -> None:
    work = _Work.make()
    async with _leading(candidate("one"), work) as leading:
        await _soon(work.begun, "it leads")
        api.request("DELETE", path(LEASE, namespace, "operator"))
        with pytest.raises(NotLeaderError, match="it was deleted"):
            await leading
        assert work.ended.is_set()


async def test_a_label_that_somebody_puts_on_the_lease_changes_no_leader(
    api: Api, namespace: str, candidate: Candidate
) -> None:
    work = _Work.make()
    async with _leading(candidate("one"), work):
        await _soon(work.begun, "it leads")
        _edit(api, namespace, {"metadata": {"labels": {"seen": "yes"}}})
        edited = _lease(api, namespace)["spec"]["renewTime"]
        await _renewed_since(api, namespace, edited)
        assert _lease(api, namespace)["metadata"]["labels"] == {"seen": "yes"}
        assert not work.ended.is_set()


async def test_a_leader_that_cannot_renew_its_lease_stops_and_may_lead_again(
    operator: Identity, namespace: str
) -> None:
    async with bridge(operator.kubeconfig) as (way, kubeconfig):
        connection = await Connection.open({"KUBECONFIG": str(kubeconfig)})
        leadership = Leadership(Cluster(connection), namespace, "operator", "one", _SHORT)
        work = _Work.make()
        async with _leading(leadership, work) as leading:
            await _soon(work.begun, "it leads")
            await way.cut()
            with pytest.raises(NotLeaderError, match="it could not be renewed in time"):
                await leading
            assert work.ended.is_set()
        again = _Work.make()
        async with _leading(leadership, again):
            await way.open()
            await _soon(again.begun, "it leads again")
        await connection.close()

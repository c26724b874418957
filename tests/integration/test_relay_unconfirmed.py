"""What becomes of leased rows when the answers to their messages come late, or never."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import asyncpg
import pytest

from outbox import schema
from outbox.table import TableName
from outbox_core.broker_errors import BrokerLostError
from outbox_core.database import Database
from outbox_core.publisher import CONFIRMED, NACKED, Outcome
from outbox_relay import unconfirmed as module
from outbox_relay.hooks import Hooks, Relayed
from outbox_relay.metrics import Metrics
from outbox_relay.queries import Queries
from outbox_relay.routes import Routes
from outbox_relay.sending import Waiting
from outbox_relay.settings import Settings
from outbox_relay.unconfirmed import LEASE_SECONDS, Leased, Unconfirmed

LOST = BrokerLostError("the channel is gone")


@dataclass
class Given:
    """Answers of a broker, as they are at the moment."""

    outcomes: Sequence[Outcome | None] = (None,)
    lost: BrokerLostError | None = None


@dataclass
class Stage:
    """A table with rows that are leased, and what looks after them."""

    database: asyncpg.Connection
    unconfirmed: Unconfirmed
    routes: Routes
    published: list[str] = field(default_factory=list)
    changes: int = 0

    async def lease(self, answers: Given, *, is_counted: bool = True) -> int:
        """A row whose message waits for these answers; its id."""
        row = await self.database.fetchrow(
            "INSERT INTO outbox_table (routing_key, body, attempts, send_after)"
            " VALUES ('a', '', $1, now() + interval '1 minute') RETURNING tableoid, id, message_id",
            int(is_counted),
        )
        relayed = Relayed(str(row["message_id"]), "a", 0)
        key = (row["tableoid"], row["id"])
        self.unconfirmed.add([Leased(key, int(is_counted), relayed, 0.1, Waiting(answers, 0), is_counted)])
        return int(row["id"])

    async def row(self, row_id: int) -> Any:
        return await self.database.fetchrow(
            "SELECT attempts, sent_at, send_after <= now() AS is_due,"
            " extract(epoch FROM send_after - now())::float8 AS seconds FROM outbox_table WHERE id = $1",
            row_id,
        )

    async def run_once(self) -> None:
        await self.unconfirmed.run_once(self.database)


async def staged(url: str, **settings: Any) -> Stage:
    database = await asyncpg.connect(url)
    await schema.create(database)
    routes, published = Routes(1, 60), list[str]()
    chosen = Settings(enable_metrics=False, **settings)
    stage: Stage

    def on_change() -> None:
        stage.changes += 1

    unconfirmed = Unconfirmed(
        settings=chosen,
        database=Database(url),
        queries=Queries(TableName.parse(chosen.table_name)),
        routes=routes,
        metrics=Metrics("outbox", exposed=False),
        hooks=Hooks(on_published=lambda relayed: published.append(relayed.message_id)),
        on_change=on_change,
    )
    stage = Stage(database, unconfirmed, routes, published)
    return stage


@pytest.fixture
async def stage(postgres_url: str) -> AsyncIterator[Stage]:
    made = await staged(postgres_url)
    yield made
    await made.database.close()


async def test_a_late_confirm_settles_the_row_and_opens_its_route(stage: Stage) -> None:
    answers = Given()
    row_id = await stage.lease(answers)
    stage.routes.unconfirmed("a")
    await stage.run_once()
    assert await stage.row(row_id) is not None
    answers.outcomes = (CONFIRMED,)
    await stage.run_once()
    assert await stage.row(row_id) is None
    assert not stage.routes.is_closed("a")
    assert (len(stage.unconfirmed), len(stage.published), stage.changes) == (0, 1, 1)


async def test_a_row_that_is_kept_is_marked_as_sent(postgres_url: str) -> None:
    stage = await staged(postgres_url, clean_up_after="never")
    row_id = await stage.lease(Given((CONFIRMED,)))
    await stage.run_once()
    assert (await stage.row(row_id))["sent_at"] is not None
    await stage.database.close()


async def test_a_row_that_somebody_has_claimed_since_is_left_alone(stage: Stage) -> None:
    row_id = await stage.lease(Given((CONFIRMED,)))
    await stage.database.execute("UPDATE outbox_table SET attempts = attempts + 1")
    await stage.run_once()
    assert (await stage.row(row_id))["sent_at"] is None
    assert len(stage.unconfirmed) == 0


@pytest.mark.parametrize("is_counted", [True, False])
async def test_a_lost_channel_gives_the_row_back_without_an_attempt(stage: Stage, is_counted: bool) -> None:
    row_id = await stage.lease(Given(lost=LOST), is_counted=is_counted)
    await stage.run_once()
    row = await stage.row(row_id)
    assert (row["attempts"], row["is_due"]) == (0, True)


async def test_a_refusal_leaves_the_row_to_its_lease(stage: Stage) -> None:
    row_id = await stage.lease(Given((NACKED,)))
    await stage.run_once()
    assert not (await stage.row(row_id))["is_due"]
    assert len(stage.unconfirmed) == 0


@pytest.mark.parametrize(("is_closed", "is_counted"), [(False, True), (True, True), (False, False)])
async def test_only_a_message_whose_route_works_again_is_sent_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, is_closed: bool, is_counted: bool
) -> None:
    monkeypatch.setattr(module, "_REOPENED_SECONDS", -1)
    row_id = await stage.lease(Given(), is_counted=is_counted)
    if is_closed:
        stage.routes.unconfirmed("a")
    await stage.run_once()
    row = await stage.row(row_id)
    assert row["is_due"] is (not is_closed and is_counted)
    assert row["attempts"] == is_counted


async def test_a_lease_is_renewed_while_its_channel_is_open(stage: Stage) -> None:
    row_id = await stage.lease(Given())
    stage.routes.unconfirmed("a")
    await stage.database.execute("UPDATE outbox_table SET send_after = now() + interval '1 second'")
    for leased in stage.unconfirmed._sent.values():
        leased.leased_at -= LEASE_SECONDS
    await stage.run_once()
    assert (await stage.row(row_id))["seconds"] > LEASE_SECONDS / 2
    assert len(stage.unconfirmed) == 1

"""What holds the horizon: for how long, and in which words."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from outbox_core.horizon_holder import Hold, Holder, HolderKind, followed

BEGAN = datetime(2026, 1, 1, 12, tzinfo=UTC)
SESSION = Holder(
    HolderKind.SESSION,
    xid=741,
    transactions=9,
    pid=47,
    name="report",
    role="app",
    database="shop",
    began_at=BEGAN,
    seconds=301,
)
PREPARED = replace(SESSION, kind=HolderKind.PREPARED_TRANSACTION, pid=None, name="7_mail")
SLOT = Holder(HolderKind.REPLICATION_SLOT, 741, 9, pid=48, name="replica")
UNUSED = replace(SLOT, pid=None, is_active=False)
STANDBY = Holder(HolderKind.STANDBY, 741, 9, pid=48, name="walreceiver")
ON_STANDBY = (
    "end the transaction there: on the standby, `SELECT pg_catalog.pg_terminate_backend(pid) "
    "FROM pg_catalog.pg_stat_activity "
    "WHERE backend_xmin = '741' AND pid <> pg_catalog.pg_backend_pid() ORDER BY xact_start LIMIT 1`"
)


@pytest.mark.parametrize(
    ("holder", "description", "cure"),
    [
        (
            SESSION,
            'session 47 (application "report", role "app", database "shop"), '
            "whose transaction began at 2026-01-01 12:00:00 UTC",
            "end it with `SELECT pg_catalog.pg_terminate_backend(47)`",
        ),
        (
            replace(SESSION, name=None, role=None, database=None, began_at=None, seconds=None),
            "session 47, of which a role with pg_read_all_stats sees more",
            "end it with `SELECT pg_catalog.pg_terminate_backend(47)`",
        ),
        (
            PREPARED,
            "prepared transaction '7_mail' "
            '(role "app", database "shop"), prepared at 2026-01-01 12:00:00 UTC',
            "end it in database \"shop\" with `ROLLBACK PREPARED '7_mail'`, unless it is to be committed",
        ),
        (
            replace(PREPARED, name="'; DROP \\", role=None, database='"x'),
            "prepared transaction E'''; DROP \\\\' (database \"\"\"x\"), prepared at 2026-01-01 12:00:00 UTC",
            'end it in database """x" with '
            "`ROLLBACK PREPARED E'''; DROP \\\\'`, unless it is to be committed",
        ),
        (
            replace(PREPARED, name=None, role=None),
            'prepared transaction with xid 741 (database "shop"), prepared at 2026-01-01 12:00:00 UTC',
            "find its gid with `SELECT gid FROM pg_catalog.pg_prepared_xacts WHERE transaction = '741'`, "
            'and end it in database "shop" with ROLLBACK PREPARED, unless it is to be committed',
        ),
        (SLOT, 'replication slot "replica", which a standby with hot_standby_feedback uses', ON_STANDBY),
        (
            UNUSED,
            'replication slot "replica", which nobody uses',
            "start its standby, or if that is gone for good drop the slot with "
            "`SELECT pg_catalog.pg_drop_replication_slot('replica')`",
        ),
        (STANDBY, 'standby "walreceiver" with hot_standby_feedback', ON_STANDBY),
    ],
)
def test_a_holder_is_described_with_its_cure(holder: Holder, description: str, cure: str) -> None:
    assert (holder.description, holder.cure) == (description, cure)


@pytest.mark.parametrize(
    ("holder", "seems_long"),
    [
        (SESSION, True),
        (replace(SESSION, seconds=299), False),
        (replace(SESSION, seconds=299, transactions=2_000_000), False),
        (replace(SESSION, seconds=None, transactions=999_999), False),
        (replace(SESSION, seconds=None, transactions=1_000_000), True),
        (SLOT, False),
        (replace(SLOT, transactions=1_000_000), True),
        (UNUSED, True),
        (STANDBY, False),
    ],
)
def test_one_look_goes_by_the_age_of_the_transaction(holder: Holder, seems_long: bool) -> None:
    assert holder.seems_long is seems_long


LATER = replace(SESSION, xid=742)
SAME_XID = replace(SESSION, pid=48)


@pytest.mark.parametrize(
    ("looks", "is_long"),
    [
        pytest.param([(0, SESSION), (299, SESSION)], False, id="not yet"),
        pytest.param([(0, SESSION), (300, SESSION)], True, id="long enough"),
        pytest.param([(0, SESSION), (300, LATER)], False, id="another snapshot"),
        pytest.param([(0, SESSION), (150, None), (300, SESSION)], False, id="nothing in between"),
        pytest.param([(0, SESSION), (300, SAME_XID)], True, id="another one at the same place"),
    ],
)
def test_a_horizon_that_stays_is_held_for_long(
    looks: list[tuple[float, Holder | None]], is_long: bool
) -> None:
    hold: Hold | None = None
    for now, holder in looks:
        hold = followed(hold, holder, now)
    assert hold is not None
    assert (hold.holder, hold.is_long(looks[-1][0])) == (looks[-1][1], is_long)

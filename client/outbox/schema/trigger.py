"""The triggers that wake the relay up: for each statement that brings something due soon, or makes it so."""

# ruff: noqa: S608 -- what is put into the SQL is a constant of ours, or quoted by outbox.table

from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache

from outbox.schema.locking import Step
from outbox.schema.quoting import array_sql, creation_name_sql, dollar_quoted
from outbox.table import TableName, quote_identifier, quote_literal

DEFAULT_CHANNEL = "outbox_channel"
"""The channel of NOTIFY unless a user chooses another. Tables may share it: the payload tells them apart."""

NOTIFY_HORIZON = timedelta(minutes=10)
"""How far ahead a message may be due and still notify.

The relay must look at the table at least that often by itself, less the time that a transaction may stay
open between an INSERT and its commit. A timer due sooner has to wake the relay up to be on time; a later
one is found in time anyway, and notifying takes a lock that all committing transactions share.
"""

ASLEEP_LOCK = 0x6F627800
"""The first half of the key of an advisory lock; the second is the table's oid.

A relay holds it exclusively while it sleeps. One that emits while none sleeps has it shared until its
commit, so that a relay which gets it sees all that was committed without a notification.
"""

TWO_PHASE = "outbox.two_phase"
"""The setting by which a transaction that will be prepared announces it: it then never notifies."""

DUTY_LOCK = 0x6F627801
"""The first half of the key of the lock that lets one relay of a table at a time fall asleep so."""

FUNCTION_SUFFIX = "notify"
"""What follows the table's name in the name of the triggers' function."""

_HORIZON_SECONDS = round(NOTIFY_HORIZON.total_seconds())
_MAX_CHANNEL_BYTES = 63


@dataclass(frozen=True, slots=True)
class Trigger:
    """One of the table's triggers; all call the same function."""

    suffix: str
    """What follows the table's name in its name."""
    type: int
    """Its `pg_trigger.tgtype`: 1 for each row, 4 on INSERT, 16 on UPDATE; 2 would be BEFORE."""
    new_rows: str | None
    """The name under which the function sees the rows of the statement."""
    event: str
    """When it fires, as CREATE TRIGGER takes it after the table's name."""
    columns: str = ""
    """What follows the event's name: the columns that an UPDATE has to set."""


TRIGGERS = (
    Trigger("notify", 4, "new_rows", "REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT"),
    # A transition table cannot be had for some columns only, and the relay's own updates are none of these:
    # so this one is for each row, and free for those whose condition is false.
    Trigger(
        "notify_sooner",
        17,
        None,
        "FOR EACH ROW "
        "WHEN (NEW.send_after < OLD.send_after OR (OLD.parked_at IS NOT NULL AND NEW.parked_at IS NULL))",
        " OF send_after, parked_at",
    ),
)


def function_source(channel: str) -> str:
    """The body of the triggers' function. It names no table, so a renamed table still announces itself."""
    _check_channel(channel)
    # Every name and operator has its schema: an emitter's search path may lead to others. A SET clause would
    # do as well, and cost each call a change of the setting and back.
    # clock_timestamp() and not now(): in a transaction open for a while, a timer set by now() is due sooner.
    return f"""
DECLARE
    announced pg_catalog.oid := TG_RELID;
    horizon pg_catalog.timestamptz;
BEGIN
    IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
        -- For each row, and so on the partition that has it.
        announced := COALESCE(pg_catalog.pg_partition_root(TG_RELID), TG_RELID);
    END IF;
    -- No relay sleeps, and none falls asleep before it has seen what this transaction commits.
    IF pg_catalog.pg_try_advisory_xact_lock_shared({ASLEEP_LOCK}, announced::pg_catalog.int4) THEN
        RETURN NULL;
    END IF;
    -- PREPARE TRANSACTION would refuse it.
    IF pg_catalog.current_setting('{TWO_PHASE}', true)
        OPERATOR(pg_catalog.=) ANY ('{{on,true,yes,1}}'::pg_catalog.text[])
    THEN
        RETURN NULL;
    END IF;
    horizon := pg_catalog.clock_timestamp()
        OPERATOR(pg_catalog.+) '{_HORIZON_SECONDS} seconds'::pg_catalog.interval;
    IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN
        IF NEW.send_after OPERATOR(pg_catalog.>) horizon THEN
            RETURN NULL;
        END IF;
    ELSIF NOT EXISTS (SELECT FROM new_rows WHERE send_after OPERATOR(pg_catalog.<=) horizon) THEN
        RETURN NULL;
    END IF;
    PERFORM pg_catalog.pg_notify(
        {quote_literal(channel)},
        pg_catalog.quote_ident(nspname) OPERATOR(pg_catalog.||) '.'
            OPERATOR(pg_catalog.||) pg_catalog.quote_ident(relname)
    )
    FROM pg_catalog.pg_class
        JOIN pg_catalog.pg_namespace ON pg_namespace.oid OPERATOR(pg_catalog.=) relnamespace
    WHERE pg_class.oid OPERATOR(pg_catalog.=) announced;
    RETURN NULL;
END
"""


def former_function_source(channel: str) -> str:
    """What the body was until 0.1, which notifies whatever relays do: any relay works with it."""
    return f"""
DECLARE
    horizon CONSTANT timestamptz := clock_timestamp() + interval '{_HORIZON_SECONDS} seconds';
BEGIN
    IF TG_OP = 'UPDATE' THEN
        IF NEW.send_after > horizon THEN
            RETURN NULL;
        END IF;
    ELSIF NOT EXISTS (SELECT FROM new_rows WHERE send_after <= horizon) THEN
        RETURN NULL;
    END IF;
    PERFORM pg_notify(
        {quote_literal(channel)},
        quote_ident(TG_TABLE_SCHEMA) || '.' || quote_ident(TG_TABLE_NAME)
    );
    RETURN NULL;
END
"""


def trigger_steps(table: TableName, channel: str, *, notify: bool = True) -> list[Step]:
    """Make the function and the triggers that are missing or differ; without `notify`, remove them."""
    if not notify:
        return [_removal_step(table)]
    source = function_source(channel)
    function = f"{table.derived_sql(FUNCTION_SUFFIX)}()"
    triggers = array_sql([table.derived(trigger.suffix) for trigger in TRIGGERS])
    renewal = Step(
        f"""(
        SELECT pg_catalog.count(*) FROM pg_catalog.pg_trigger JOIN pg_catalog.pg_proc ON pg_proc.oid = tgfoid
        WHERE tgrelid = this_table AND tgname = ANY ({triggers}) AND prosrc = {quote_literal(source)}
    ) < {len(TRIGGERS)}""",
        f"""        CREATE OR REPLACE FUNCTION {function} RETURNS trigger LANGUAGE plpgsql
        AS {dollar_quoted(source, "notify")};
""",
        lock=None,
    )
    return [renewal, *(step for trigger in TRIGGERS for step in _trigger_steps(table, trigger, source))]


def _removal_step(table: TableName) -> Step:
    function = f"{table.derived_sql(FUNCTION_SUFFIX)}()"
    found = f"""FROM pg_catalog.pg_trigger
        WHERE tgrelid = this_table
            AND tgfoid = pg_catalog.to_regprocedure({creation_name_sql(table, function)})::oid"""
    return Step(
        f"EXISTS (\n        SELECT {found}\n    )",
        f"""        FOR item IN SELECT tgname {found} LOOP
            EXECUTE 'DROP TRIGGER ' || pg_catalog.quote_ident(item.tgname)
                || {quote_literal(f" ON {table.sql}")};
        END LOOP;
        DROP FUNCTION {function};
""",
    )


def _trigger_steps(table: TableName, trigger: Trigger, source: str) -> list[Step]:
    name = table.derived(trigger.suffix)
    function = f"{table.derived_sql(FUNCTION_SUFFIX)}()"
    new_rows = "IS NULL" if trigger.new_rows is None else f"= '{trigger.new_rows}'"
    verb = "INSERT" if trigger.new_rows else "UPDATE"
    found = f"""SELECT FROM pg_catalog.pg_trigger JOIN pg_catalog.pg_proc ON pg_proc.oid = tgfoid
        WHERE tgrelid = this_table AND tgname = {quote_literal(name)}"""
    # A trigger on the function that is renewed in place stays; so does one on the same code elsewhere.
    current = f"""EXISTS (
        {found}
            AND tgtype = {trigger.type} AND tgnewtable {new_rows}
            AND (
                tgfoid = pg_catalog.to_regprocedure({creation_name_sql(table, function)})::oid
                OR prosrc = {quote_literal(source)}
            )
    )"""
    drop = f"        DROP TRIGGER {quote_identifier(name)} ON {table.sql};\n"
    create = f"""        CREATE TRIGGER {quote_identifier(name)} AFTER {verb}{trigger.columns} ON {table.sql}
        {trigger.event}
        EXECUTE FUNCTION {function};
"""
    return [
        Step(f"EXISTS (\n        {found}\n    ) AND NOT {current}", drop, "ACCESS EXCLUSIVE"),
        Step(f"NOT {current}", create, "SHARE ROW EXCLUSIVE"),
    ]


@lru_cache(maxsize=256)  # The same few payloads come with every commit.
def concerns(payload: str, table: TableName) -> bool:
    """Whether a notification with this payload may be about the table.

    The trigger sends a name with its schema, which a table name may leave open. The original library's
    trigger sends nothing, which may be about any table.
    """
    if not payload:
        return True
    announced = TableName.parse(payload)
    return announced.name == table.name and table.schema in (None, announced.schema)


def _check_channel(channel: str) -> None:
    if not channel:
        raise ValueError(f"the channel is empty; name one, or leave it out for {DEFAULT_CHANNEL!r}")
    size = len(channel.encode())
    if size > _MAX_CHANNEL_BYTES:
        raise ValueError(
            f"channel {channel!r} is {size} bytes long; NOTIFY takes at most {_MAX_CHANNEL_BYTES}, shorten it"
        )

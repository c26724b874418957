-- name: claim
-- Lock a batch: rows that are due without an ordering key, in the order of their index, and of each ordering key
-- the first row, if it is due. A locked row is passed over, and so is its key: a key has at most one row in flight.
--
-- $1: how many of each kind. $2, $3: the position of the first row without a key to read; before it are rows that
-- were claimed, and dead index entries. $4: ids of rows before that position that were committed late. $5: keys to
-- claim from; $6: the id of each from which on its rows are to be read. $7, $8: the position after which due rows
-- of other keys are read; $9: how many of them.
--
-- Which rows are due depends on the time of the statement: its transaction may have begun before the one that wrote
-- a row. A row is identified by its partition and its id: a partitioned table has no index that keeps ids unique
-- across partitions. CASE keeps conditions from choosing another index than that on ids, or a join that reads the
-- whole table. The last row of the result has no message but a report, read by `Claims`.
WITH keyless AS MATERIALIZED (
    SELECT {columns}
    FROM {table} AS message
    WHERE {keyless_due} AND (send_after, id) >= ({moment:$2}, $3::bigint)
    ORDER BY send_after, id
    LIMIT $1::integer
    FOR UPDATE SKIP LOCKED
), late AS MATERIALIZED (
    SELECT {columns}
    FROM {table} AS message
    WHERE id = ANY ($4::bigint[])
        AND CASE WHEN {keyless_due} AND (send_after, id) < ({moment:$2}, $3::bigint) THEN true END
    FOR UPDATE SKIP LOCKED
), discovered AS MATERIALIZED (
    SELECT ordering_key::text AS ordering_key, send_after, id
    FROM {table} AS message
    WHERE {keyed_due} AND (send_after, id) > ({moment:$7}, $8::bigint)
    ORDER BY send_after, id
    LIMIT $9::integer
), candidate AS MATERIALIZED (
    SELECT ordering_key, from_id
    FROM ROWS FROM (
        pg_catalog.unnest($5::text[]), pg_catalog.unnest($6::bigint[])
    ) AS given (ordering_key, from_id)
    UNION ALL
    SELECT DISTINCT ordering_key, {first_id}
    FROM discovered
    WHERE ordering_key <> ALL ($5::text[])
), head AS MATERIALIZED (
    SELECT candidate.ordering_key, first.partition, first.id, first.send_after, first.parked_at
    FROM candidate LEFT JOIN LATERAL (
        {first_of_key:candidate.from_id}
    ) AS first ON true
), keyed AS MATERIALIZED (
    SELECT {columns}
    FROM {table} AS message
    WHERE id = ANY (ARRAY(
            SELECT id FROM head WHERE parked_at IS NULL AND send_after <= pg_catalog.statement_timestamp()
        ))
        AND CASE
            WHEN (message.tableoid, message.id) IN (SELECT partition, id FROM head) AND {keyed_due} THEN true
        END
    LIMIT $1::integer
    FOR UPDATE OF message SKIP LOCKED
), report AS (
    SELECT pg_catalog.json_build_object(
        'clock', {micros:pg_catalog.statement_timestamp()},
        'first', (
            SELECT pg_catalog.json_build_array({micros:send_after}, id)
            FROM {table} AS message
            WHERE {keyless_due} AND (send_after, id) >= ({moment:$2}, $3::bigint)
            ORDER BY send_after, id
            LIMIT 1
        ),
        'discovered', (SELECT pg_catalog.count(*) FROM discovered),
        'last', (
            SELECT pg_catalog.json_build_array({micros:send_after}, id)
            FROM discovered
            ORDER BY send_after DESC, id DESC
            LIMIT 1
        ),
        'keys', (SELECT pg_catalog.json_object_agg(ordering_key, id) FROM (
            SELECT ordering_key, pg_catalog.min(id) AS id FROM discovered GROUP BY ordering_key
        ) AS key),
        'unclaimable', (
            SELECT pg_catalog.json_agg(ordering_key)
            FROM head
            WHERE id IS NULL OR parked_at IS NOT NULL OR send_after > pg_catalog.statement_timestamp()
        )
    )::text AS text
)
SELECT *, NULL AS report FROM keyless
UNION ALL
SELECT *, NULL FROM late
UNION ALL
SELECT *, NULL FROM keyed
UNION ALL
SELECT {no_columns}, text FROM report

-- name: look
-- Whether something is due that was not claimed, since somebody else has locked it; and in how many seconds the
-- next message is due, NULL if there is none. $1, $2: the position of the first row without a key to read; $3, $4:
-- the one after which rows with a key are read.
SELECT
    EXISTS (
        SELECT FROM {table} AS message
        WHERE {keyless_due} AND (send_after, id) >= ({moment:$1}, $2::bigint)
    ) OR EXISTS (
        SELECT FROM {table} AS message
        WHERE {keyed_due} AND (send_after, id) > ({moment:$3}, $4::bigint)
    ) AS is_due,
    -- A message that somebody holds back until infinity has no interval to it.
    (extract(epoch FROM least(
        (
            SELECT send_after
            FROM {table} AS message
            WHERE ordering_key IS NULL AND {pending} AND send_after > pg_catalog.statement_timestamp()
            ORDER BY send_after, id
            LIMIT 1
        ),
        (
            SELECT send_after
            FROM {table} AS message
            WHERE ordering_key IS NOT NULL AND {pending} AND send_after > pg_catalog.statement_timestamp()
            ORDER BY send_after, id
            LIMIT 1
        )
    )) - extract(epoch FROM pg_catalog.clock_timestamp()))::float8 AS next_seconds

-- name: late
-- The due rows without a key before a position: they were committed late. $1, $2: the position; $3: how many.
SELECT id, {micros:send_after} AS micros
FROM {table} AS message
WHERE {keyless_due} AND (send_after, id) < ({moment:$1}, $2::bigint)
ORDER BY send_after, id
LIMIT $3::integer

-- name: claimable_keys
-- Keys of which the first row can be claimed, among those of a page of due rows. $1, $2: the position after which
-- the page begins; $3, $4: the one at which the last page ends; $5: how many rows it has. One row: how many rows
-- there were, the position of the last one, and the keys, each with the lowest id found.
WITH page AS MATERIALIZED (
    SELECT ordering_key::text AS ordering_key, send_after, id
    FROM {table} AS message
    WHERE {keyed_due} AND (send_after, id) > ({moment:$1}, $2::bigint)
        AND (send_after, id) <= ({moment:$3}, $4::bigint)
    ORDER BY send_after, id
    LIMIT $5::integer
), candidate AS MATERIALIZED (
    SELECT ordering_key, pg_catalog.min(id) AS id FROM page GROUP BY ordering_key
)
SELECT
    (SELECT pg_catalog.count(*) FROM page) AS rows,
    last.micros,
    last.id,
    (
        SELECT pg_catalog.json_object_agg(candidate.ordering_key, candidate.id)
        FROM candidate CROSS JOIN LATERAL (
            {first_of_key:{first_id}}
        ) AS first
        WHERE first.parked_at IS NULL AND first.send_after <= pg_catalog.statement_timestamp()
    )::text AS keys
FROM (SELECT) AS always LEFT JOIN (
    SELECT {micros:send_after} AS micros, id FROM page ORDER BY send_after DESC, id DESC LIMIT 1
) AS last ON true

-- name: writers
-- The transactions that may have written to the table, each by the lock that it holds on it, or on a partition,
-- until its end. $1: the table's quoted name.
WITH RECURSIVE tree AS (
    SELECT $1::text::regclass::oid AS partition
    UNION
    SELECT inhrelid FROM tree JOIN pg_catalog.pg_inherits ON inhparent = tree.partition
)
SELECT DISTINCT virtualtransaction AS writer
FROM pg_catalog.pg_locks
WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND relation IN (SELECT partition FROM tree)
    AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())

-- name: claimable
-- Whether any row could be claimed, if nobody had it locked. Of due rows with a key the first 10,000 are looked at:
-- that none of so many is the first of its key means that they wait for rows that are parked or not due.
SELECT EXISTS (SELECT FROM {table} AS message WHERE {keyless_due}) OR EXISTS (
    SELECT FROM (
        SELECT ordering_key::text AS ordering_key, id
        FROM {table} AS message
        WHERE {keyed_due}
        ORDER BY send_after, id
        LIMIT 10000
    ) AS candidate CROSS JOIN LATERAL (
        {first_of_key:{first_id}}
    ) AS first
    WHERE first.id = candidate.id
) AS is_any

-- name: partitions
-- The table and its partitions, of which claimed rows have to be. $1: the table's quoted name.
WITH RECURSIVE tree AS (
    SELECT $1::text::regclass::oid AS partition
    UNION
    SELECT inhrelid FROM tree JOIN pg_catalog.pg_inherits ON inhparent = tree.partition
)
SELECT partition FROM tree

-- name: bodies
-- The bodies of some claimed rows. $1: their ids, each of which another partition may have too.
SELECT tableoid AS partition, id, body FROM {table} WHERE id = ANY ($1::bigint[])

-- name: delete
-- Forget messages. $1: their ids; $2: the partition that they are in.
DELETE FROM {table} WHERE id = ANY ($1::bigint[]) AND tableoid = $2::oid

-- name: mark_sent
-- Keep messages that were sent, until retention takes them. The transaction may have begun before they were due,
-- so its time is not the one at which they were sent. $1: their ids; $2: the partition that they are in.
UPDATE {table} SET sent_at = pg_catalog.statement_timestamp(), last_error = NULL
WHERE id = ANY ($1::bigint[]) AND tableoid = $2::oid

-- name: back_off
-- Try messages again later. $1: partitions; $2: ids; $3: seconds; $4: errors; $5: how many attempts that were.
UPDATE {table} AS message
SET attempts = attempts + given.failures, last_error = given.error, {due_later}
FROM unnest($1::oid[], $2::bigint[], $3::float8[], $4::text[], $5::integer[])
    AS given (partition, id, delay, error, failures)
WHERE message.id = given.id AND message.tableoid = given.partition

-- name: reschedule
-- Move messages that wait for a late confirm, unless somebody has claimed them since. $1: partitions; $2: ids;
-- $3: their attempts; $4: how many of these were none; $5: seconds.
UPDATE {table} AS message
SET attempts = message.attempts - given.uncounted, {due_later}
FROM (
    SELECT partition, id, attempts, uncounted, $5::float8 AS delay
    FROM unnest($1::oid[], $2::bigint[], $3::integer[], $4::integer[])
        AS row (partition, id, attempts, uncounted)
) AS given
WHERE message.id = given.id AND message.tableoid = given.partition AND message.attempts = given.attempts
    AND sent_at IS NULL AND parked_at IS NULL

-- name: delete_late
-- Forget messages that were confirmed late, unless somebody has claimed them since. $1: partitions; $2: ids;
-- $3: their attempts.
DELETE FROM {table} AS message
USING unnest($1::oid[], $2::bigint[], $3::integer[]) AS given (partition, id, attempts)
WHERE message.id = given.id AND message.tableoid = given.partition AND message.attempts = given.attempts
    AND sent_at IS NULL

-- name: mark_late
-- Keep messages that were confirmed late, as above. $1: partitions; $2: ids; $3: their attempts.
UPDATE {table} AS message
SET sent_at = pg_catalog.statement_timestamp(), last_error = NULL, parked_at = NULL
FROM unnest($1::oid[], $2::bigint[], $3::integer[]) AS given (partition, id, attempts)
WHERE message.id = given.id AND message.tableoid = given.partition AND message.attempts = given.attempts
    AND sent_at IS NULL

-- name: park
-- Give messages up, and keep them for a person to look at. $1: partitions; $2: ids; $3: reasons.
UPDATE {table} AS message
SET attempts = attempts + 1, last_error = given.error, parked_at = pg_catalog.statement_timestamp()
FROM unnest($1::oid[], $2::bigint[], $3::text[]) AS given (partition, id, error)
WHERE message.id = given.id AND message.tableoid = given.partition

-- name: purge_sent
-- Delete some of the messages that were sent long ago. The ids alone find them by the key's index; only with their
-- partitions do they identify a row. $1: seconds; $2: how many at most; $3: the moment from which on to look for them,
-- as seconds since 1970, so that no batch walks over the dead entries that the ones before have left. Returns the next
-- such moment too: what was sent within a minute may not be committed yet.
WITH old AS MATERIALIZED (
    SELECT tableoid AS partition, id, sent_at FROM {table}
    WHERE sent_at >= {floor} AND sent_at < pg_catalog.now() - $1::float8 * interval '1 second'
    ORDER BY sent_at
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM {table} AS message
    WHERE id = ANY (ARRAY(SELECT id FROM old)) AND sent_at IS NOT NULL
        AND EXISTS (SELECT FROM old WHERE old.id = message.id AND old.partition = message.tableoid)
    RETURNING 1
)
SELECT (SELECT pg_catalog.count(*) FROM deleted) AS count, (
    SELECT extract(epoch FROM least(pg_catalog.max(sent_at), pg_catalog.now() - interval '1 minute'))::float8
    FROM old
    HAVING pg_catalog.count(*) > 0
) AS next

-- name: purge_parked
-- Delete some of the messages that were parked long ago, found as above. $1: seconds; $2: how many at most; $3: from
-- which moment on.
WITH old AS MATERIALIZED (
    SELECT tableoid AS partition, id, parked_at FROM {table}
    WHERE parked_at >= {floor} AND parked_at < pg_catalog.now() - $1::float8 * interval '1 second'
    ORDER BY parked_at
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM {table} AS message
    WHERE id = ANY (ARRAY(SELECT id FROM old)) AND parked_at IS NOT NULL
        AND EXISTS (SELECT FROM old WHERE old.id = message.id AND old.partition = message.tableoid)
    RETURNING 1
)
SELECT (SELECT pg_catalog.count(*) FROM deleted) AS count, (
    SELECT extract(epoch FROM least(pg_catalog.max(parked_at), pg_catalog.now() - interval '1 minute'))::float8
    FROM old
    HAVING pg_catalog.count(*) > 0
) AS next

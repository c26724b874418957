-- name: claim
-- Lock a batch: what is due without an ordering key, in the order of its index, and of each key that is due
-- its first row. A row that another lane or replica has locked is passed over, and so is its key: a key has
-- at most one row in flight. $1: how many of each kind; $2: the key from which on, or after which, to look for
-- keyed rows, so that a batch begins where the last one ended and every key gets its turn. What is due is told by
-- the time of the statement: its transaction may have begun before the one that wrote a row. A row is identified
-- by its partition and its id: a partitioned table has no index that keeps ids unique across partitions.
WITH RECURSIVE keyless AS MATERIALIZED (
    SELECT {columns}
    FROM {table} AS message
    WHERE ordering_key IS NULL AND sent_at IS NULL AND parked_at IS NULL AND send_after <= statement_timestamp()
    ORDER BY send_after, id
    LIMIT $1::integer
    FOR UPDATE SKIP LOCKED
), head AS (
    -- One index probe for each key, however many rows it has.
    (
        SELECT tableoid AS partition, ordering_key, id, send_after, parked_at
        FROM {table}
        WHERE ordering_key {beyond} $2::text AND sent_at IS NULL
        ORDER BY ordering_key, id
        LIMIT 1
    )
    UNION ALL
    SELECT following.*
    FROM head, LATERAL (
        SELECT tableoid AS partition, ordering_key, id, send_after, parked_at
        FROM {table}
        WHERE ordering_key > head.ordering_key AND sent_at IS NULL
        ORDER BY ordering_key, id
        LIMIT 1
    ) AS following
), keyed AS MATERIALIZED (
    SELECT {columns}
    FROM head JOIN {table} AS message ON message.id = head.id AND message.tableoid = head.partition
    WHERE head.parked_at IS NULL AND head.send_after <= statement_timestamp() AND message.sent_at IS NULL
        AND message.parked_at IS NULL AND message.send_after <= statement_timestamp()
    LIMIT $1::integer
    FOR UPDATE OF message SKIP LOCKED
)
SELECT * FROM keyless UNION ALL SELECT * FROM keyed

-- name: look
-- Whether something is due that was not claimed, since somebody else has it; and how many seconds from now the
-- nearest message is due that is not due yet, NULL where there is none.
WITH RECURSIVE head AS (
    (
        SELECT ordering_key, id, send_after, parked_at
        FROM {table}
        WHERE ordering_key IS NOT NULL AND sent_at IS NULL
        ORDER BY ordering_key, id
        LIMIT 1
    )
    UNION ALL
    SELECT following.*
    FROM head, LATERAL (
        SELECT ordering_key, id, send_after, parked_at
        FROM {table}
        WHERE ordering_key > head.ordering_key AND sent_at IS NULL
        ORDER BY ordering_key, id
        LIMIT 1
    ) AS following
)
SELECT
    EXISTS (
        SELECT FROM {table}
        WHERE ordering_key IS NULL AND sent_at IS NULL AND parked_at IS NULL AND send_after <= now()
    ) OR EXISTS (SELECT FROM head WHERE parked_at IS NULL AND send_after <= now()) AS is_due,
    -- A message that somebody holds back until infinity has no interval to it.
    (extract(epoch FROM least(
        (
            SELECT send_after
            FROM {table}
            WHERE ordering_key IS NULL AND sent_at IS NULL AND parked_at IS NULL AND send_after > now()
            ORDER BY send_after, id
            LIMIT 1
        ),
        (SELECT min(send_after) FROM head WHERE parked_at IS NULL AND send_after > now())
    )) - extract(epoch FROM clock_timestamp()))::float8 AS next_seconds

-- name: partitions
-- The table and its partitions, of which claimed rows have to be. $1: the table's quoted name.
WITH RECURSIVE tree AS (
    SELECT $1::text::regclass::oid AS partition
    UNION
    SELECT inhrelid FROM tree JOIN pg_inherits ON inhparent = tree.partition
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
UPDATE {table} SET sent_at = statement_timestamp(), last_error = NULL
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
SET sent_at = statement_timestamp(), last_error = NULL, parked_at = NULL
FROM unnest($1::oid[], $2::bigint[], $3::integer[]) AS given (partition, id, attempts)
WHERE message.id = given.id AND message.tableoid = given.partition AND message.attempts = given.attempts
    AND sent_at IS NULL

-- name: park
-- Give messages up, and keep them for a person to look at. $1: partitions; $2: ids; $3: reasons.
UPDATE {table} AS message
SET attempts = attempts + 1, last_error = given.error, parked_at = statement_timestamp()
FROM unnest($1::oid[], $2::bigint[], $3::text[]) AS given (partition, id, error)
WHERE message.id = given.id AND message.tableoid = given.partition

-- name: purge_sent
-- Delete some of the messages that were sent long ago. The ids alone find them by the key's index; only with their
-- partitions do they identify a row. $1: seconds; $2: how many at most; $3: the moment from which on to look for them,
-- as seconds since 1970, so that no batch walks over the dead entries that the ones before have left. Returns the next
-- such moment too: what was sent within a minute may not be committed yet.
WITH old AS MATERIALIZED (
    SELECT tableoid AS partition, id, sent_at FROM {table}
    WHERE sent_at >= {floor} AND sent_at < now() - $1::float8 * interval '1 second'
    ORDER BY sent_at
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM {table} AS message
    WHERE id = ANY (ARRAY(SELECT id FROM old)) AND sent_at IS NOT NULL
        AND EXISTS (SELECT FROM old WHERE old.id = message.id AND old.partition = message.tableoid)
    RETURNING 1
)
SELECT (SELECT count(*) FROM deleted) AS count, (
    SELECT extract(epoch FROM least(max(sent_at), now() - interval '1 minute'))::float8 FROM old HAVING count(*) > 0
) AS next

-- name: purge_parked
-- Delete some of the messages that were parked long ago, found as above. $1: seconds; $2: how many at most; $3: from
-- which moment on.
WITH old AS MATERIALIZED (
    SELECT tableoid AS partition, id, parked_at FROM {table}
    WHERE parked_at >= {floor} AND parked_at < now() - $1::float8 * interval '1 second'
    ORDER BY parked_at
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM {table} AS message
    WHERE id = ANY (ARRAY(SELECT id FROM old)) AND parked_at IS NOT NULL
        AND EXISTS (SELECT FROM old WHERE old.id = message.id AND old.partition = message.tableoid)
    RETURNING 1
)
SELECT (SELECT count(*) FROM deleted) AS count, (
    SELECT extract(epoch FROM least(max(parked_at), now() - interval '1 minute'))::float8 FROM old HAVING count(*) > 0
) AS next

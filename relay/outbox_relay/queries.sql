-- name: claim
-- Lock a batch: what is due without an ordering key, in the order of its index, and of each key that is due
-- its first row. A row that another lane or replica has locked is passed over, and so is its key: a key has
-- at most one row in flight. $1: how many of each kind; $2: the key from which on, or after which, to look for
-- keyed rows, so that a batch begins where the last one ended and every key gets its turn. What is due is told by
-- the time of the statement: its transaction may have begun before the one that wrote a row.
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
        SELECT ordering_key, id, send_after, parked_at
        FROM {table}
        WHERE ordering_key {beyond} $2::text AND sent_at IS NULL
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
), keyed AS MATERIALIZED (
    SELECT {columns}
    FROM head JOIN {table} AS message USING (id)
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

-- name: bodies
-- The bodies of some claimed rows. $1: their ids.
SELECT id, body FROM {table} WHERE id = ANY ($1::bigint[])

-- name: delete
-- Forget messages. $1: their ids.
DELETE FROM {table} WHERE id = ANY ($1::bigint[])

-- name: mark_sent
-- Keep messages that were sent, until retention takes them. The transaction may have begun before they were due,
-- so its time is not the one at which they were sent. $1: their ids.
UPDATE {table} SET sent_at = statement_timestamp(), last_error = NULL WHERE id = ANY ($1::bigint[])

-- name: back_off
-- Try messages again later. What is left of an expiration counts from then on, so that the moment at which it
-- ends stays the same. $1: ids; $2: seconds; $3: errors.
UPDATE {table} AS message
SET attempts = attempts + 1,
    last_error = given.error,
    send_after = clock_timestamp() + given.delay * interval '1 second',
    expiration = send_after + expiration - (clock_timestamp() + given.delay * interval '1 second')
FROM unnest($1::bigint[], $2::float8[], $3::text[]) AS given (id, delay, error)
WHERE message.id = given.id

-- name: park
-- Give messages up, and keep them for a person to look at. $1: ids; $2: reasons.
UPDATE {table} AS message
SET attempts = attempts + 1, last_error = given.error, parked_at = statement_timestamp()
FROM unnest($1::bigint[], $2::text[]) AS given (id, error)
WHERE message.id = given.id

-- name: purge_sent
-- Delete some of the messages that were sent long ago. $1: seconds; $2: how many at most.
DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {table}
    WHERE sent_at < now() - $1::float8 * interval '1 second'
    ORDER BY sent_at
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
))

-- name: purge_parked
-- Delete some of the messages that were parked long ago. $1: seconds; $2: how many at most.
DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {table}
    WHERE parked_at < now() - $1::float8 * interval '1 second'
    ORDER BY parked_at
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
))

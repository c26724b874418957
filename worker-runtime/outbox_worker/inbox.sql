-- name: note
-- Note a message as handled, unless it is noted already. Somebody else's note that is not committed yet is
-- waited for: it becomes a duplicate, or, when it is rolled back, ours. With the number of the transaction, by
-- which its end is recognised. $1: the queue; $2: the message's id.
INSERT INTO {table} (queue, message_id) VALUES ($1::text, $2::text)
ON CONFLICT (queue, message_id) DO NOTHING
RETURNING pg_catalog.txid_current()

-- name: find
-- A row where a message is noted. $1: the queue; $2: the message's id.
SELECT 1 FROM {table} WHERE queue::text = $1::text AND message_id::text = $2::text

-- name: forget
-- Remove the note of a message. $1: the queue; $2: the message's id.
DELETE FROM {table} WHERE queue::text = $1::text AND message_id::text = $2::text
RETURNING 1

-- name: committed
-- A row if the transaction of this number is committed. $1: the number.
SELECT 1 WHERE pg_catalog.txid_status($1::bigint) = 'committed'

-- name: transaction
-- The number of the transaction this runs in; NULL where nothing was written in it. An error where a statement
-- has failed in it: a COMMIT would then be taken for a ROLLBACK, without a word.
SELECT pg_catalog.txid_current_if_assigned()

-- name: purge
-- Forget some of the messages that were handled long ago. Their places find them without another index; only the
-- key and the partition identify them, since each partition has the same places. $1: seconds; $2: how many at most.
WITH old AS MATERIALIZED (
    SELECT tableoid AS partition, ctid AS place, queue::text, message_id::text FROM {table}
    WHERE handled_at < pg_catalog.now() - $1::float8 * interval '1 second'
    ORDER BY handled_at
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
)
DELETE FROM {table} AS noted
WHERE ctid = ANY (ARRAY(SELECT place FROM old))
    AND EXISTS (
        SELECT FROM old
        WHERE old.queue = noted.queue::text AND old.message_id = noted.message_id::text
            AND old.partition = noted.tableoid
    )

-- name: note
-- Note a message as handled, unless it is noted already. Somebody else's note that is not committed yet is
-- waited for: it becomes a duplicate, or, when it is rolled back, ours. With the number of the transaction, by
-- which its end is recognised. $1: the queue; $2: the message's id.
INSERT INTO {table} (queue, message_id) VALUES ($1::text, $2::text)
ON CONFLICT (queue, message_id) DO NOTHING
RETURNING txid_current()

-- name: find
-- A row where a message is noted. $1: the queue; $2: the message's id.
SELECT 1 FROM {table} WHERE queue = $1::text AND message_id = $2::text

-- name: transaction
-- The number of the transaction this runs in; NULL where nothing was written in it. An error where a statement
-- has failed in it: a COMMIT would then be taken for a ROLLBACK, without a word.
SELECT txid_current_if_assigned()

-- name: purge
-- Forget some of the messages that were handled long ago. $1: seconds; $2: how many at most.
DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM {table}
    WHERE handled_at < now() - $1::float8 * interval '1 second'
    ORDER BY handled_at
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
))

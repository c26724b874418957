"""A silent connection is given up by us before the broker gives our messages to others."""

import pytest
from yarl import URL

from outbox_core.aiormq_internals import BulkConnection


@pytest.mark.parametrize("heartbeat_seconds", [10, 30, 60])
async def test_a_silent_connection_is_given_up_before_two_heartbeats(heartbeat_seconds: int) -> None:
    connection = BulkConnection(URL(f"amqp://b/?heartbeat={heartbeat_seconds}"))
    grace = (heartbeat_seconds + 1) * connection.HEARTBEAT_GRACE_MULTIPLIER
    assert vars(connection)["_Connection__heartbeat_grace_timeout"] == grace
    assert grace + heartbeat_seconds // 2 < 2 * heartbeat_seconds

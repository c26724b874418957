import pytest

from outbox_operator.broker.snapshot import Reason
from outbox_operator.broker.vhost import retry_seconds


@pytest.mark.parametrize("reason", [Reason.UNREACHABLE, Reason.VHOST_MISSING])
def test_what_may_come_back_at_any_time_is_looked_for_often(reason: Reason) -> None:
    assert max(retry_seconds(reason, failures) for failures in (1, 10, 1000)) <= 6


def test_permissions_that_are_given_are_noticed_within_a_minute() -> None:
    assert max(retry_seconds(Reason.PERMISSION_DENIED, failures) for failures in (1, 10, 1000)) <= 30


def test_a_broker_that_refuses_us_is_asked_less_and_less_often() -> None:
    assert retry_seconds(Reason.AUTHENTICATION_FAILED, 1000) > 60

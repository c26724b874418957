import pytest

from outbox_cli.local import LocalServiceError, Services, use
from outbox_cli.local.services import management_url

GIVEN = {"OUTBOX_POSTGRES_URL": "postgresql://a:secret@db/x", "OUTBOX_RABBITMQ_URL": "amqp://a:secret@mq/"}


@pytest.mark.parametrize(
    ("amqp", "environment", "management"),
    [
        ("amqp://a:b@mq:5673/", {}, "http://a:b@mq:15672"),
        ("amqp://a:b@mq/vhost", {}, "http://a:b@mq:15672"),
        ("amqp://mq", {}, "http://mq:15672"),
        ("amqp://a:b@[::1]:5672/", {}, "http://a:b@[::1]:15672"),
        ("amqp://a:b@[::1]/", {}, "http://a:b@[::1]:15672"),
        ("amqp://a:b@x,y:5673,[::1]:1/v", {}, "http://a:b@x:15672,y:15672,[::1]:15672"),
        ("amqp://mq", {"OUTBOX_RABBITMQ_MANAGEMENT_URL": "https://c:d@api/"}, "https://c:d@api"),
    ],
)
def test_the_management_api_is_beside_the_broker(
    amqp: str, environment: dict[str, str], management: str
) -> None:
    assert management_url(amqp, environment) == management


@pytest.mark.parametrize("verb", ["start", "stop", "kill"])
def test_a_service_that_somebody_else_runs_is_left_as_it_is(verb: str) -> None:
    with pytest.raises(LocalServiceError, match=rf"cannot {verb} Postgres: .*OUTBOX_POSTGRES_URL") as caught:
        getattr(use(GIVEN).postgres, verb)()
    assert "secret" not in str(caught.value)


def test_a_service_that_was_not_asked_for_says_so() -> None:
    with pytest.raises(LocalServiceError, match=r"start\(postgres=True\)"):
        _ = Services().postgres
    with pytest.raises(LocalServiceError, match=r"start\(rabbitmq=True\)"):
        _ = Services().rabbitmq


def test_no_password_is_in_the_repr() -> None:
    assert "secret" not in repr(use(GIVEN))

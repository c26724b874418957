from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from outbox import Constant, Delays, Listener, Worker
from outbox.topology import TopologyError
from outbox_worker import SettingError, Settings, WorkerError
from outbox_worker.settings import Override, from_environment, override_from_environment

GOOD: list[tuple[str, str, Any]] = [
    ("exchange_name", "shop", "shop"),
    ("retry_delays", "1, 2.5,60", (1, 2.5, 60)),
    ("retry_delays", "", ()),
    ("prefetch_count", "100", 100),
    ("enable_metrics", "0", False),
    ("provisioned", "yes", True),
    ("handler_timeout", "5", 5),
    ("handler_timeout", "none", None),
    ("consumer_timeout", "600", 600),
    ("consumer_timeout", "none", None),
    ("delivery_limit", "5", 5),
    ("shutdown_timeout", "0", 0),
    ("publish_timeout", "2.5", 2.5),
    ("dlq_interval", "5", 5),
    ("inbox_table", "shop.inbox", "shop.inbox"),
    ("inbox_retention", "3600", timedelta(hours=1)),
    ("inbox_connections", "3", 3),
    ("auto_create_table", "true", True),
]


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_a_variable_becomes_its_field(name: str, text: str, value: Any) -> None:
    settings = from_environment({f"OUTBOX_{name.upper()}": text})
    assert getattr(settings, name) == value
    others = [field.name for field in fields(Settings) if field.name != name]
    assert [getattr(settings, other) for other in others] == [getattr(Settings(), other) for other in others]


@pytest.mark.parametrize(
    ("handler_timeout", "consumer_timeout", "is_in_time"),
    [(1500, 1800, True), (1800, 1800, False), (None, 1800, False), (None, None, True), (9000, None, True)],
)
def test_a_call_should_end_before_the_broker_closes_its_channel(
    handler_timeout: float | None, consumer_timeout: float | None, is_in_time: bool
) -> None:
    settings = Settings(handler_timeout=handler_timeout, consumer_timeout=consumer_timeout)
    assert settings.calls_end_in_time is is_in_time


def test_every_field_can_be_given_by_its_variable() -> None:
    assert {name for name, _, _ in GOOD} == {field.name for field in fields(Settings)}


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("retry_delays", "1,soon", "OUTBOX_RETRY_DELAYS='1,soon': could not convert string to float"),
        ("prefetch_count", "many", "OUTBOX_PREFETCH_COUNT='many': invalid literal for int"),
        ("provisioned", "", "OUTBOX_PROVISIONED='': write true or false"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named(name: str, text: str, complaint: str) -> None:
    with pytest.raises(SettingError) as raised:
        from_environment({f"OUTBOX_{name.upper()}": text})
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"OUTBOX_QUEUE": ""}, None),
        ({"OUTBOX_RETRY_DELAYS": "1,2"}, None),
        ({"OUTBOX_QUEUE": "q"}, Override(queue="q")),
        ({"OUTBOX_QUEUE": "q", "OUTBOX_ORDERED": "true"}, Override(queue="q", ordered=True)),
        ({"OUTBOX_QUEUE": "q", "OUTBOX_ORDERED": "false"}, Override(queue="q", ordered=False)),
        (
            {"OUTBOX_QUEUE": "q", "OUTBOX_RETRY_DELAYS": "0.3, 60"},
            Override(queue="q", retry_delays=(0.3, 60)),
        ),
        ({"OUTBOX_QUEUE": "q", "OUTBOX_RETRY_DELAYS": ""}, Override(queue="q", retry_delays=())),
    ],
)
def test_a_queue_makes_the_environment_win_over_the_code(
    environment: dict[str, str], expected: Override | None
) -> None:
    assert override_from_environment(environment) == expected


def test_an_order_without_its_queue_is_refused() -> None:
    with pytest.raises(SettingError, match="OUTBOX_ORDERED is for .* one queue; set OUTBOX_QUEUE"):
        override_from_environment({"OUTBOX_ORDERED": "true"})


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("prefetch_count", 0, "prefetch_count must be at least 1, got 0"),
        ("prefetch_count", 65536, "prefetch_count must be at most 65535, got 65536"),
        ("inbox_connections", 0, "inbox_connections must be at least 1, got 0"),
        ("handler_timeout", 0, "handler_timeout must be more than 0 seconds, or None, got 0"),
        ("shutdown_timeout", -1, "shutdown_timeout must be 0 or more seconds, got -1"),
        ("publish_timeout", 0, "publish_timeout must be more than 0 seconds, got 0"),
        ("dlq_interval", 0, "dlq_interval must be more than 0 seconds, got 0"),
        ("inbox_retention", timedelta(), "inbox_retention must be more than 0 seconds"),
        ("inbox_table", "a.b.c", "table name 'a.b.c' has 3 parts"),
        ("exchange_name", "", "exchange ''"),
        ("retry_delays", (0,), "a delay must be between 1 ms"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(name: str, value: Any, complaint: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared below
        Settings(**{name: value})
    assert complaint in str(raised.value)


def test_retry_delays_are_seconds_or_a_policy() -> None:
    assert Settings(retry_delays=(1, 2)).policy == Delays((1, 2))
    assert Settings(retry_delays=Constant(5)).policy == Constant(5)


def worker(*listeners: Any, **options: Any) -> Worker:
    return Worker(rmq_connection_url="amqp://b", listeners=listeners, enable_metrics=False, **options)


def test_a_worker_takes_its_settings_as_a_whole_or_one_by_one_and_not_both() -> None:
    chosen = Settings(prefetch_count=7, enable_metrics=False)
    assert Worker(rmq_connection_url="amqp://b", settings=chosen).settings is chosen
    assert worker(prefetch_count=7).settings == chosen
    with pytest.raises(TypeError, match="give settings=, or its fields as arguments, not both"):
        worker(settings=chosen)
    with pytest.raises(TypeError, match="unexpected keyword argument 'prefetch'"):
        worker(prefetch=7)
    with pytest.raises(TypeError, match="give exactly one of rmq_connection and rmq_connection_url"):
        Worker()


async def first(body: Any) -> None: ...


async def second(body: Any) -> None: ...


def test_two_functions_on_one_queue_are_refused_by_name() -> None:
    with pytest.raises(WorkerError) as raised:
        worker(Listener("a", first, "q"), Listener("b", second, "q"))
    assert "queue 'q' has two listeners" in str(raised.value)
    assert "test_worker_settings.first" in str(raised.value)
    assert "test_worker_settings.second" in str(raised.value)


def test_one_function_with_two_keys_is_one_listener_unless_it_contradicts_itself() -> None:
    worker(Listener("a", first, "q"), Listener("b", first, "q"))
    with pytest.raises(WorkerError, match="must be the same for each"):
        worker(Listener("a", first, "q"), Listener("b", first, "q", ordered=True))
    with pytest.raises(TopologyError, match="different retry delays"):
        worker(Listener("a", first, "q", (1,)), Listener("b", first, "q", (2,)))


def test_what_is_no_listener_is_refused() -> None:
    with pytest.raises(WorkerError, match="is no listener; decorate a function with @listen"):
        worker(first)

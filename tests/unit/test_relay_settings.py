from dataclasses import fields
from datetime import timedelta
from typing import Any

import pytest

from outbox import MessageRelay
from outbox_core.backoff import Backoff
from outbox_relay import IMMEDIATELY, NEVER, SettingError, Settings
from outbox_relay.settings import from_environment
from outbox_relay.settlement import Policy

GOOD: list[tuple[str, str, Any]] = [
    ("exchange_name", "shop", "shop"),
    ("table_name", "shop.outbox", "shop.outbox"),
    ("channel", "shop_channel", "shop_channel"),
    ("notify", "Never", "never"),
    ("auto_create_table", "true", True),
    ("auto_create_table", "No", False),
    ("provisioned", "YES", True),
    ("batch_size", "50", 50),
    ("lanes", "4", 4),
    ("notification_timeout", "30", 30),
    ("notification_timeout", "0.5", 0.5),
    ("poll_interval", "2.5", 2.5),
    ("listen", "off", False),
    ("listen", "1", True),
    ("publish_timeout", "5", 5),
    ("expiration", "60", 60),
    ("expiration", "", None),
    ("expiration", "none", None),
    ("expired", "park", "park"),
    ("expired", "DROP", "drop"),
    ("unroutable", "drop", "drop"),
    ("unroutable_grace", "0", 0),
    ("max_attempts", "7", 7),
    ("max_attempts", "None", None),
    ("backoff_initial", "0.1", 0.1),
    ("backoff_maximum", "3600", 3600),
    ("clean_up_after", "immediately", IMMEDIATELY),
    ("clean_up_after", "IMMEDIATELY", IMMEDIATELY),
    ("clean_up_after", "Never", NEVER),
    ("clean_up_after", "3600", timedelta(hours=1)),
    ("parked_retention", "86400.5", timedelta(days=1, seconds=0.5)),
    ("parked_retention", "none", None),
    ("shutdown_timeout", "0", 0),
    ("enable_metrics", "0", False),
    ("max_message_size", "1000", 1000),
]


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_a_variable_becomes_its_field(name: str, text: str, value: Any) -> None:
    settings = from_environment({f"OUTBOX_{name.upper()}": text})
    assert getattr(settings, name) == value
    assert type(getattr(settings, name)) in (type(value), float)
    others = [field.name for field in fields(Settings) if field.name != name]
    assert [getattr(settings, other) for other in others] == [getattr(Settings(), other) for other in others]


def test_every_field_can_be_given_by_its_variable() -> None:
    assert {name for name, _, _ in GOOD} == {field.name for field in fields(Settings)}


def test_other_variables_are_none_of_its_business() -> None:
    assert from_environment({"PATH": "/bin", "OUTBOX_DATABASE_URL": "x", "OUTBOX_": "x"}) == Settings()


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("auto_create_table", "maybe", "OUTBOX_AUTO_CREATE_TABLE='maybe': write true or false"),
        ("provisioned", "", "OUTBOX_PROVISIONED='': write true or false"),
        ("batch_size", "many", "OUTBOX_BATCH_SIZE='many': invalid literal for int"),
        ("batch_size", "1.5", "OUTBOX_BATCH_SIZE='1.5': invalid literal for int"),
        ("poll_interval", "soon", "OUTBOX_POLL_INTERVAL='soon': could not convert string to float"),
        ("expired", "keep", "OUTBOX_EXPIRED='keep': write drop or park"),
        ("unroutable", "", "OUTBOX_UNROUTABLE='': write park or drop"),
        ("max_attempts", "ever", "OUTBOX_MAX_ATTEMPTS='ever': invalid literal for int"),
        ("clean_up_after", "later", "OUTBOX_CLEAN_UP_AFTER='later': write immediately or never; could not"),
        ("clean_up_after", "inf", "OUTBOX_CLEAN_UP_AFTER='inf': write immediately or never; cannot convert"),
        ("parked_retention", "1e300", "OUTBOX_PARKED_RETENTION='1e300': "),
        ("parked_retention", "nan", "OUTBOX_PARKED_RETENTION='nan': "),
    ],
)
def test_a_variable_that_cannot_be_read_is_named_with_what_to_write(
    name: str, text: str, complaint: str
) -> None:
    with pytest.raises(SettingError) as raised:
        from_environment({f"OUTBOX_{name.upper()}": text})
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("batch_size", 0, "batch_size must be at least 1, got 0"),
        ("lanes", 0, "lanes must be at least 1, got 0"),
        ("notification_timeout", 0, "notification_timeout must be more than 0 seconds, got 0"),
        ("notification_timeout", 301, "notification_timeout must be at most 300 seconds, got 301"),
        ("notification_timeout", float("nan"), "notification_timeout must be more than 0 seconds, got nan"),
        ("poll_interval", -1, "poll_interval must be more than 0 seconds, got -1"),
        ("publish_timeout", 0, "publish_timeout must be more than 0 seconds, got 0"),
        ("unroutable_grace", -1, "unroutable_grace must be 0 or more seconds, got -1"),
        ("shutdown_timeout", -1, "shutdown_timeout must be 0 or more seconds, got -1"),
        ("max_attempts", 0, "max_attempts must be at least 1, or None, got 0"),
        ("clean_up_after", timedelta(seconds=-1), "clean_up_after must be 0 or more seconds, got "),
        ("parked_retention", timedelta(seconds=-1), "parked_retention must be 0 or more seconds, got "),
        ("clean_up_after", "later", "clean_up_after must be IMMEDIATELY, NEVER, a timedelta or seconds"),
        ("clean_up_after", True, "clean_up_after must be IMMEDIATELY, NEVER, a timedelta or seconds"),
        ("expiration", -1, "expiration must not be negative, got -1"),
        ("backoff_initial", 0, "backoff: initial (0 s) must be more than 0"),
        ("backoff_initial", 61, "backoff: initial (61 s) must be more than 0 and at most maximum (60 s)"),
        ("table_name", "", "table name '' has an empty part"),
        ("table_name", "a.b.c", "table name 'a.b.c' has 3 parts"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(name: str, value: Any, complaint: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is compared below
        Settings(**{name: value})
    assert complaint in str(raised.value)


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("IMMEDIATELY", IMMEDIATELY),
        ("immediately", IMMEDIATELY),
        ("NEVER", NEVER),
        (None, NEVER),
        (timedelta(hours=1), timedelta(hours=1)),
        (3600, timedelta(hours=1)),
        (0.5, timedelta(milliseconds=500)),
    ],
)
def test_clean_up_after_is_written_as_in_the_original_library(given: Any, meant: Any) -> None:
    assert Settings(clean_up_after=given).clean_up_after == meant


def test_the_policy_follows_from_the_settings() -> None:
    settings = Settings(
        backoff_initial=1,
        backoff_maximum=2,
        max_attempts=3,
        unroutable="drop",
        unroutable_grace=4,
        expired="park",
    )
    assert settings.policy == Policy(
        backoff=Backoff(1, 2),
        max_attempts=3,
        unroutable="drop",
        unroutable_grace_seconds=4,
        expired="park",
    )


def test_a_relay_takes_its_settings_as_a_whole_or_one_by_one_and_not_both() -> None:
    urls = {"db_engine_url": "postgresql://d/d", "rmq_connection_url": "amqp://b"}
    chosen = Settings(batch_size=7, enable_metrics=False)
    assert MessageRelay(**urls, settings=chosen).settings is chosen
    assert MessageRelay(**urls, batch_size=7, enable_metrics=False).settings == chosen
    for more in ({"batch_size": 8}, {"expiration": 5}):
        with pytest.raises(TypeError, match="give settings=, or its fields as arguments, not both"):
            MessageRelay(**urls, settings=chosen, **more)
    with pytest.raises(TypeError, match="unexpected keyword argument 'batchsize'"):
        MessageRelay(**urls, batchsize=7)


@pytest.mark.parametrize("given", [timedelta(seconds=90), 90, 90.0])
def test_a_relays_expiration_is_seconds_or_a_timedelta(given: Any) -> None:
    relay = MessageRelay(
        db_engine_url="postgresql://d/d",
        rmq_connection_url="amqp://b",
        expiration=given,
        enable_metrics=False,
    )
    assert relay.settings.expiration == 90

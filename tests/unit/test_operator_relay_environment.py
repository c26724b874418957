from dataclasses import fields
from datetime import timedelta

import pytest

from outbox_operator.relay_environment import relay_environment
from outbox_operator.resources import OutboxRelay
from outbox_relay.settings import NEVER, Settings, from_environment
from tests.operator.manifests import FULL_RELAY, RELAY, Manifest, changed


def _settings(manifest: Manifest) -> Settings:
    return from_environment(relay_environment(OutboxRelay.model_validate(manifest).spec))


def test_the_shortest_relay_has_the_defaults_of_the_settings() -> None:
    # But for what the operator is there for: it makes the exchange, and lets the relay make its table.
    assert _settings(RELAY) == Settings(provisioned=True, auto_create_table=True)


def test_everything_in_the_spec_reaches_its_setting() -> None:
    assert _settings(FULL_RELAY) == Settings(
        exchange_name="shop events",
        table_name='shop."outbox.table"',
        channel="shop_channel",
        notify="never",
        auto_create_table=False,
        provisioned=True,
        batch_size=50,
        lanes=4,
        notification_timeout=30,
        poll_interval=2.5,
        listen=False,
        publish_timeout=5,
        expiration=86400,
        expired="park",
        unroutable="drop",
        unroutable_grace=0,
        max_attempts=None,
        backoff_initial=0.1,
        backoff_maximum=3600,
        clean_up_after=timedelta(days=7),
        parked_retention=timedelta(days=30),
        shutdown_timeout=60,
        max_message_size=1000,
    )


def test_every_setting_is_written_out() -> None:
    written = set(relay_environment(OutboxRelay.model_validate(RELAY).spec))
    known = {f"OUTBOX_{field.name.upper()}" for field in fields(Settings)}
    assert known - written == {"OUTBOX_ENABLE_METRICS"}
    assert written <= known


@pytest.mark.parametrize(
    "changes",
    [
        {"notificationTimeout": "5m"},
        {"notificationTimeout": "100ms"},
        {"pollInterval": "10ms"},
        {"publishTimeout": "100ms"},
        {"shutdownTimeout": "0s"},
        {"publishRetry": {"initial": "1ms", "maximum": "1ms", "maxAttempts": 1}},
        {"publishRetry": {"initial": "1h", "maximum": "24h", "maxAttempts": 1_000_000}},
        {"expiration": "1ms"},
        {"expiration": "87600h"},
        {"batchSize": 1, "lanes": 1, "maxMessageSize": 1},
        {"database.table": f"{'s' * 63}.{'t' * 63}"},
        {"retention": {"sent": "1ms", "parked": "0s"}},
    ],
    ids=str,
)
def test_the_bounds_of_the_schema_are_within_those_of_the_settings(changes: Manifest) -> None:
    _settings(changed(RELAY, changes))


def test_a_fraction_of_a_long_time_is_kept() -> None:
    settings = _settings(changed(RELAY, {"expiration": "87599h59m59s999ms"}))
    assert settings.expiration == 315359999.999


def test_for_ever_is_never() -> None:
    settings = _settings(changed(RELAY, {"retention": {"sent": "Forever", "parked": "Forever"}}))
    assert (settings.clean_up_after, settings.parked_retention) == (NEVER, None)

import pytest

from outbox_operator.children.workload import Workload, relay_workload, worker_workload
from outbox_operator.relay_environment import relay_environment
from outbox_operator.resources import OutboxListener, OutboxRelay
from outbox_worker.settings import Settings, from_environment, override_from_environment
from tests.operator.manifests import FULL_LISTENER, FULL_RELAY, GONE, LISTENER, RELAY, Manifest, changed

_WORKER = changed(LISTENER, {"handler": "shop.listeners:on_user", "worker.image": "shop:1"})


def _relay(manifest: Manifest = RELAY, number: int = 1, image: str = "relay:1") -> Workload:
    relay = OutboxRelay.model_validate(manifest)
    return relay_workload(relay, image=image, secret_name=f"shop-{number}", has_ca=False)


def _worker(manifest: Manifest = _WORKER, *, exchange: str = "outbox", replicas: int | None = 1) -> Workload:
    listener, name = OutboxListener.model_validate(manifest), "mail-1"
    return worker_workload(listener, exchange, "q", secret_name=name, has_ca=False, replicas=replicas)


def test_a_relay_runs_the_relay_with_both_urls_from_its_secret() -> None:
    relay = _relay()
    assert relay.command == ("python", "-m", "outbox_relay")
    assert relay.secret_environment == {
        "OUTBOX_BROKER_URL": "broker-uri",
        "OUTBOX_DATABASE_URL": "database-uri",
    }
    assert relay.environment == relay_environment(OutboxRelay.model_validate(RELAY).spec)
    assert (relay.image, relay.is_default_image, relay.replicas) == ("relay:1", True, 1)


def test_a_relay_may_name_an_image_of_its_own() -> None:
    relay = _relay(FULL_RELAY)
    assert (relay.image, relay.is_default_image, relay.replicas) == ("registry.example/relay:1.0", False, 3)


def test_a_worker_runs_its_handler_with_the_brokers_url_alone() -> None:
    worker = _worker(FULL_LISTENER)
    assert worker.command == ("python", "-m", "outbox_worker", "shop.listeners:send_welcome_mail")
    assert worker.secret_environment == {"OUTBOX_BROKER_URL": "broker-uri"}
    assert worker.image == "registry.example/shop:1.4"
    assert worker.serves_http


def test_without_a_handler_the_image_says_what_is_run_and_nobody_knows_whether_it_has_probes() -> None:
    worker = _worker(changed(LISTENER, {"worker.image": "shop:1"}))
    assert worker.command == ()
    assert not worker.serves_http


def test_a_listener_without_a_worker_has_no_workload() -> None:
    with pytest.raises(ValueError, match="OutboxListener default/send-welcome-mail has no worker"):
        _worker(LISTENER)


def test_what_a_listener_says_reaches_its_worker() -> None:
    environment = _worker(changed(FULL_LISTENER, {"retryDelays": ["300ms", "1h30m"]})).environment
    settings = from_environment(environment)
    assert settings == Settings(
        exchange_name="outbox",
        retry_delays=(0.3, 5400),
        prefetch_count=20,
        provisioned=True,
        shutdown_timeout=120,
    )
    override = override_from_environment(environment)
    assert override is not None
    assert (override.queue, override.retry_delays, override.ordered) == ("q", (0.3, 5400), True)


def test_no_retries_and_no_order_are_answers() -> None:
    override = override_from_environment(_worker(changed(_WORKER, {"retryDelays": []})).environment)
    assert override is not None
    assert (override.retry_delays, override.ordered) == ((), False)


@pytest.mark.parametrize(
    "changes",
    [
        {"replicas": 5},
        {"paused": True},
        {"deletionPolicy": "Delete"},
        {"broker.managementUrl": "http://rabbitmq:1"},
        {"broker.secretRef.name": "other"},
        {"database.secretRef.name": "other"},
        # A default that is written out, as the API server does.
        {"batchSize": 500, "expired": "Drop", "template": {}, "retention": {"sent": "0s"}},
    ],
    ids=",".join,
)
def test_what_does_not_reach_a_relays_pods_is_no_input(changes: Manifest) -> None:
    assert _relay(changed(RELAY, changes)).inputs == _relay().inputs


@pytest.mark.parametrize(
    "changes",
    [
        {"batchSize": 1},
        {"image": "relay:2"},
        {"database.table": "t"},
        {"database.manageSchema": "Check"},
        {"retention.parked": "1h"},
        {"template.labels": {"a": "b"}},
        {"template.resources": {"limits": {"cpu": 1}}},
        {"shutdownTimeout": "1m"},
    ],
    ids=",".join,
)
def test_what_reaches_a_relays_pods_is_an_input(changes: Manifest) -> None:
    assert _relay(changed(RELAY, changes)).inputs != _relay().inputs


def test_another_secret_is_another_input_and_another_default_image_is_none() -> None:
    assert _relay(number=2).inputs != _relay().inputs
    assert _relay(image="relay:2").inputs == _relay().inputs


@pytest.mark.parametrize(
    "changes",
    [
        {"worker.replicas": 3},
        {"worker.autoscaling": {"max": 4}},
        {"bindingKeys": ["a", "b"]},
        {"limits": {"maxLength": 5}},
        {"paused": True},
    ],
    ids=",".join,
)
def test_what_does_not_reach_a_workers_pods_is_no_input(changes: Manifest) -> None:
    assert _worker(changed(_WORKER, changes), replicas=None).inputs == _worker(replicas=3).inputs


@pytest.mark.parametrize(
    "changes",
    [
        {"worker.image": "shop:2"},
        {"worker.prefetch": 1},
        {"handler": GONE},
        {"retryDelays": []},
        {"ordered": True},
        {"worker.template.env": [{"name": "TZ", "value": "UTC"}]},
    ],
    ids=",".join,
)
def test_what_reaches_a_workers_pods_is_an_input(changes: Manifest) -> None:
    assert _worker(changed(_WORKER, changes)).inputs != _worker().inputs


def test_another_exchange_of_the_relay_is_an_input_of_the_worker() -> None:
    assert _worker(exchange="other").inputs != _worker().inputs

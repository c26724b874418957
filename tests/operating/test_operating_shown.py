"""What people see of the operator's work: numbers, Events, columns, a pause, a mistake, and no secret."""

import asyncio
import json
import logging
import re
from base64 import b64encode
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import quote, urlsplit

import aio_pika
import psycopg
import pytest
from prometheus_client import CollectorRegistry

from outbox_cli.local.ports import free_ports
from outbox_core.probes import Probes
from outbox_core.signals import Shutdown
from outbox_operator.__main__ import _lead
from outbox_operator.cluster.connection import Connection
from outbox_operator.metrics import Metrics
from outbox_operator.reconciling.key import Key
from outbox_operator.settings import Settings
from tests.operator.accounts import broker_uri, broker_user, database_role, database_uri
from tests.operator.control_plane.api import Manifest
from tests.operator.counting import api_writes, samples, several_looks, several_passes
from tests.operator.pods import Pods
from tests.operator.site import DEADLINE_SECONDS, Site
from tests.operator.unchecked import store_unchecked


async def ready_pair(site: Site) -> tuple[Manifest, Manifest]:
    """A relay and a listener of it, applied; an operator that runs makes them ready."""
    relay, listener = site.relay(), site.listener()
    site.make_secrets()
    site.api.create(relay)
    site.api.create(listener)
    await site.until_condition(relay)
    await site.until_condition(listener)
    return relay, listener


def said(site: Site, *arguments: str) -> str:
    """What kubectl answers."""
    done = site.api.kubectl(*arguments, "--namespace", site.namespace)
    assert done.returncode == 0, done.stderr
    return done.stdout


def table(text: str) -> list[dict[str, str]]:
    """The rows that kubectl prints, by heading; a column ends where the next heading begins."""
    head, *rows = text.splitlines()
    columns = [(each.group().strip(), each.start(), each.end()) for each in re.finditer(r"\S+ *", head)]
    return [{name: f"{row:<{len(head)}}"[start:end].strip() for name, start, end in columns} for row in rows]


# Numbers.


def insert(site: Site, *ages: timedelta, parked: bool = False) -> None:
    """Messages in the relay's table that became due so long ago."""
    statement = (
        "INSERT INTO outbox_table (routing_key, body, send_after, parked_at) "
        "SELECT 'user.created', '', now() - %s, CASE WHEN %s THEN now() END"
    )
    with psycopg.connect(site.postgres_url, autocommit=True) as connection:
        for age in ages:
            connection.execute(statement, (age, parked))


def publish(site: Site, queue: str, messages: int) -> None:
    body = {"properties": {}, "routing_key": queue, "payload": "{}", "payload_encoding": "string"}
    for _ in range(messages):
        assert site.broker("POST", "exchanges/{vhost}/amq.default/publish", body) == {"routed": True}


async def test_a_relay_shows_what_waits_in_its_table(site: Site) -> None:
    async with site.operating() as operator:
        relay, _ = await ready_pair(site)
        await several_passes(site, operator, 1)
        empty = site.status(relay)
        assert (empty["backlog"], empty["parked"], empty.get("oldestPendingAt")) == (0, 0, None)

        hour = timedelta(hours=1)
        insert(site, timedelta(seconds=5), hour, timedelta(minutes=1), -hour)
        insert(site, timedelta(days=1), timedelta(days=2), parked=True)
        await site.until(lambda: site.status(relay)["backlog"] == 3, "three messages that are due")
        full = site.status(relay)
        assert full["parked"] == 2
        oldest = datetime.fromisoformat(full["oldestPendingAt"])
        assert abs(datetime.now(UTC) - hour - oldest) < timedelta(minutes=1)

        # Numbers that stay the same are not written again, and neither is an age that grows.
        await several_passes(site, operator, 1)
        version, writes = site.get(relay)["metadata"]["resourceVersion"], api_writes(operator)
        await several_passes(site, operator, 4)
        assert (site.get(relay)["metadata"]["resourceVersion"], api_writes(operator)) == (version, writes)

        with psycopg.connect(site.postgres_url, autocommit=True) as connection:
            connection.execute("DELETE FROM outbox_table WHERE send_after <= now()")
        await site.until(lambda: site.status(relay)["backlog"] == 0, "an empty table again")
        gone = site.status(relay)
        assert (gone["parked"], gone.get("oldestPendingAt")) == (0, None)


async def test_a_listener_shows_what_waits_in_its_queues(site: Site) -> None:
    async with site.operating() as operator:
        _, listener = await ready_pair(site)
        queue = f"{site.namespace}.mail"

        def numbers() -> tuple[int, int]:
            status = site.status(listener)
            return status["backlog"], status["deadLetters"]

        assert numbers() == (0, 0)
        publish(site, queue, 3)
        publish(site, f"{queue}.dlq", 2)
        await site.until(lambda: numbers() == (3, 2), "three messages and two dead letters")

        await several_looks(site, operator, 1)
        version, writes = site.get(listener)["metadata"]["resourceVersion"], api_writes(operator)
        await several_looks(site, operator, 4)
        assert (site.get(listener)["metadata"]["resourceVersion"], api_writes(operator)) == (version, writes)

        site.broker("DELETE", f"queues/{{vhost}}/{queue}/contents")
        await site.until(lambda: numbers() == (0, 2), "an empty queue again")


# Events.


def told(site: Site, resource: Manifest) -> list[tuple[str, str]]:
    """The type and reason of each Event, the oldest first."""
    found = sorted(site.events(resource), key=lambda each: int(each["metadata"]["resourceVersion"]))
    return [(each["type"], each["reason"]) for each in found]


async def _until_told(site: Site, resource: Manifest, reason: str) -> None:
    await site.until(lambda: told(site, resource)[-1] == ("Warning", reason), f"an Event {reason}")


async def test_events_tell_of_turns_and_of_nothing_else(site: Site) -> None:
    relay, listener = site.relay(), site.listener()
    site.api.create(relay)
    async with site.operating() as operator:
        await site.until_condition(relay, "Ready", "False", "SecretMissing")
        [event] = await site.until(lambda: site.events(relay), "an Event")
        assert event["message"] == site.condition(relay, "CredentialsValid")["message"]
        assert event["involvedObject"]["uid"] == site.get(relay)["metadata"]["uid"]
        site.make_secrets()
        await site.until_condition(relay)
        site.api.create(listener)
        await site.until_condition(listener)
        turns = [("Warning", "SecretMissing"), ("Normal", "Ready")]
        await site.until(lambda: told(site, relay) == turns, "that the relay is ready")
        await site.until(lambda: told(site, listener) == [("Normal", "Ready")], "that the listener is")

        # Neither a number, nor an edit, nor a pass is a turn.
        insert(site, timedelta(seconds=5))
        site.edit(listener, bindingKeys=["user.*"])
        await site.until(lambda: site.status(relay)["backlog"] == 1, "a message that is due")
        await site.until_condition(listener)
        await several_passes(site, operator)
        assert told(site, relay) == turns
        assert told(site, listener) == [("Normal", "Ready")]

        site.change_secret("shop-rabbitmq", uri=broker_uri(site, "nobody", "nothing"))
        await site.until_condition(relay, "Ready", "False", "AuthenticationFailed")
        await site.until_condition(listener, "Ready", "False", "AuthenticationFailed")
        for resource in (relay, listener):
            await _until_told(site, resource, "AuthenticationFailed")
        site.change_secret("shop-rabbitmq", uri=site.rabbitmq_url)
        await site.until_condition(relay)
        await site.until_condition(listener)
        turns += [("Warning", "AuthenticationFailed"), ("Normal", "Ready")]
        await site.until(lambda: told(site, relay) == turns, "that the relay is ready again")
        await site.until(lambda: told(site, listener) == turns[1:], "that the listener is ready again")


# Secrets.

_WORDS = ("zebra", "okapi", "tapir", "quokka", "lemur", "numbat")
_PASSWORD = "zebra@okapi:tapir/quokka %41 lemur?#numbat"  # noqa: S105 - of this test


def everything_open(site: Site, records: Sequence[logging.LogRecord]) -> dict[str, str]:
    """All that somebody can read who may not read Secrets, by where it is."""
    found = {f"log {number}": repr(vars(record)) for number, record in enumerate(records)}
    collections = {
        "/apis/outbox.dev/v1alpha1": ("outboxrelays", "outboxlisteners"),
        "/apis/apps/v1": ("deployments",),
        "/apis/policy/v1": ("poddisruptionbudgets",),
        "/api/v1": ("events", "secrets", "configmaps", "pods"),
    }
    for group, plurals in collections.items():
        for plural in plurals:
            items = site.api.request("GET", f"{group}/namespaces/{site.namespace}/{plural}")["items"]
            for item in items:
                shown = item["metadata"] if plural == "secrets" else item
                found[f"{plural} {item['metadata']['name']}"] = json.dumps(shown)
    return found


def leaks(site: Site, records: Sequence[logging.LogRecord], *users: str) -> list[str]:
    """Where a part of the password is, plain, encoded for a URL or in base64."""
    logins = [f"{user}:{_PASSWORD}" for user in users]
    coded = [b64encode(each.encode()).decode().rstrip("=") for each in (_PASSWORD, *logins)]
    needles = [*_WORDS, *coded]
    return [
        where for where, text in everything_open(site, records).items() for each in needles if each in text
    ]


def closed_port() -> int:
    [port] = free_ports(1)
    return port


@pytest.mark.parametrize("form", ["uri", "keys"])
async def test_credentials_with_special_characters_work_and_are_seen_nowhere(
    site: Site, caplog: pytest.LogCaptureFixture, form: str
) -> None:
    caplog.set_level(logging.DEBUG)
    relay = site.relay(replicas=2)
    listener = site.listener(worker={"image": "shop:1"}, handler="shop:mail")
    amqp, postgres = urlsplit(site.rabbitmq_url), urlsplit(site.postgres_url)
    with broker_user(site, _PASSWORD, tags="management") as user, database_role(site, _PASSWORD) as role:
        if form == "uri":
            site.make_secret("shop-rabbitmq", uri=broker_uri(site, user, _PASSWORD))
            site.make_secret("shop-db", uri=database_uri(site, role, _PASSWORD))
        else:
            broker = {"host": str(amqp.hostname), "port": str(amqp.port), "vhost": site.vhost}
            site.make_secret("shop-rabbitmq", **broker, username=user, password=_PASSWORD)
            database = {"host": str(postgres.hostname), "port": str(postgres.port)}
            database |= {"database": postgres.path.removeprefix("/")}
            site.make_secret("shop-db", **database, username=role, password=_PASSWORD)
        site.api.create(relay)
        site.api.create(listener)
        async with site.operating():
            relays, workers = Pods(site, relay), Pods(site, listener)
            await relays.until_made()
            await workers.until_made()
            relays.roll_out()
            workers.roll_out()
            await site.until_condition(relay)
            await site.until_condition(listener)
            for pods in (relays, workers):
                connection = await aio_pika.connect(pods.broker_uri)
                await connection.close()
            with psycopg.connect(relays.secret()["database-uri"]) as entered:
                assert entered.info.user == role
        assert caplog.records
        assert leaks(site, caplog.records, user, role) == []


def _hasty(like: str) -> str:
    """A URL by somebody who did not know that a password has to be encoded."""
    parts = urlsplit(like)
    return f"{parts.scheme}://shop:{_PASSWORD}@{parts.hostname}:{parts.port}{parts.path}"


def _away(like: str) -> str:
    parts = urlsplit(like)
    return f"{parts.scheme}://shop:{quote(_PASSWORD, safe='')}@127.0.0.1:{closed_port()}{parts.path}"


def _refused(like: str) -> str:
    parts = urlsplit(like)
    password = quote(_PASSWORD, safe="")
    return f"{parts.scheme}://{parts.username}:{password}@{parts.hostname}:{parts.port}{parts.path}"


async def test_mistakes_in_secrets_are_told_without_what_is_in_them(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    relay, listener = site.relay(), site.listener()
    site.make_secrets()
    site.api.create(relay)
    site.api.create(listener)
    async with site.operating():
        await site.until_condition(listener)
        for name, url in ("shop-rabbitmq", site.rabbitmq_url), ("shop-db", site.postgres_url):
            for mistake, reason in (_hasty, "InvalidUri"), (_refused, "AuthenticationFailed"):
                site.change_secret(name, uri=mistake(url))
                await site.until_condition(relay, "Ready", "False", reason)
            site.change_secret(name, uri=url)
            await site.until_condition(relay)
        site.change_secret("shop-db", uri=_away(site.postgres_url))
        await site.until_condition(relay, "Ready", "False", "Unreachable")
        site.change_secret("shop-rabbitmq", uri=_refused(site.rabbitmq_url))
        site.edit(relay, broker={"managementUrl": f"http://127.0.0.1:{closed_port()}"})
        await site.until_condition(listener, "Ready", "False", "Unreachable")
    user = urlsplit(site.rabbitmq_url).username or ""
    assert caplog.records
    assert leaks(site, caplog.records, user, "shop") == []


async def test_the_password_of_a_pods_own_user_is_seen_nowhere(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    relay = site.relay(replicas=1)
    listener = site.listener(worker={"image": "shop:1"}, handler="shop:mail")
    site.make_secrets()
    site.api.create(relay)
    site.api.create(listener)
    passwords = set()
    async with site.operating():
        for resource in (relay, listener):
            pods = Pods(site, resource)
            await pods.until_made()
            passwords.add(urlsplit(pods.broker_uri).password)
            before = pods.secret_name
            site.annotate(resource, rotate="now")
            await pods.until_another_secret(before)
            passwords.add(urlsplit(pods.broker_uri).password)
    passwords |= {urlsplit(url).password for url in (site.rabbitmq_url, site.postgres_url)}
    assert len(passwords) >= 5
    seen = everything_open(site, caplog.records)
    assert [where for where, text in seen.items() for each in passwords if str(each) in text] == []


# A pause.


async def test_a_paused_resource_is_left_as_it_is(site: Site) -> None:
    async with site.operating() as operator:
        relay, listener = await ready_pair(site)
        queue = f"{site.namespace}.mail"
        for resource in (relay, listener):
            site.edit(resource, paused=True)
            paused = await site.until_condition(resource, "Ready", "Unknown", "Paused")
            assert "until it is false" in paused["message"]
            await site.until_condition(resource, "Paused", "True", "Paused")

        site.edit(listener, bindingKeys=["user.deleted"], worker={"image": "shop:1"})
        site.edit(relay, replicas=3)
        site.broker("DELETE", f"queues/{{vhost}}/{queue}.dlq")
        site.broker("DELETE", "exchanges/{vhost}/outbox.dlx")
        publish(site, queue, 1)
        await several_looks(site, operator)
        assert f"{queue}.dlq" not in site.queues()
        assert "outbox.dlx" not in site.exchanges()
        assert site.bindings(queue) == {("outbox", "user.created")}
        assert Pods(site, relay).deployment["spec"]["replicas"] == 0
        assert site.find("Deployment", Pods(site, listener).name) is None

        # What is done by hand to what is not paused any more is put right, and what was edited is done.
        site.edit(relay, paused=False, replicas=0)
        await site.until_condition(relay)
        await site.until(lambda: "outbox.dlx" in site.exchanges(), "the exchange again")
        assert f"{queue}.dlq" not in site.queues()
        site.edit(listener, paused=False, worker=None)
        await site.until_condition(listener)
        assert f"{queue}.dlq" in site.queues()
        assert site.bindings(queue) == {("outbox", "user.deleted")}
        assert site.condition(relay, "Paused") == site.condition(listener, "Paused") == {}


async def test_a_pause_is_told_once(site: Site) -> None:
    async with site.operating() as operator:
        relay, listener = await ready_pair(site)
        site.edit(listener, paused=True)
        await site.until_condition(listener, "Ready", "Unknown", "Paused")
        pause = [("Normal", "Ready"), ("Normal", "Paused")]
        await site.until(lambda: told(site, listener) == pause, "that it is paused")
        # The relay is not: its listeners' affairs are not its own.
        await several_passes(site, operator)
        assert site.condition(relay)["status"] == "True"
        assert told(site, listener) == pause


# A resource that nobody can read.


async def test_a_resource_that_cannot_be_read_says_so(site: Site) -> None:
    async with site.operating() as operator:
        relay, listener = await ready_pair(site)
        store_unchecked(site, listener, retryDelays=["soon"])
        wrong = await site.until_condition(listener, "Ready", "False", "Invalid")
        assert "spec.retryDelays.0: " in wrong["message"]
        assert "must be a duration from 1ms to 24h" in wrong["message"]
        # What it had is not taken from it meanwhile.
        await several_passes(site, operator)
        assert {"outbox.delay_1s", f"{site.namespace}.mail"} <= set(site.queues())
        site.edit(listener, retryDelays=["1s"])
        await site.until_condition(listener)

        store_unchecked(site, relay, replicas=-1)
        wrong = await site.until_condition(relay, "Ready", "False", "Invalid")
        assert "spec.replicas: " in wrong["message"]
        await _until_told(site, relay, "Invalid")
        # It is there, so nobody is told to create it.
        told = await site.until_condition(listener, "RelayReady", "False")
        assert (told["reason"], "cannot be read" in told["message"]) == ("RelayInvalid", True)
        site.edit(relay, replicas=0)
        await site.until_condition(relay)
        await site.until_condition(listener)


async def test_the_tiers_of_a_listener_that_cannot_be_read_stay(site: Site) -> None:
    async with site.operating(tier_grace_seconds=0) as operator:
        _, listener = await ready_pair(site)
        store_unchecked(site, listener, ordered="perhaps")
        await site.until_condition(listener, "Ready", "False", "Invalid")
        await several_passes(site, operator)
        assert {"outbox.delay_1s", "outbox.delay_300s"} <= set(site.queues())


# kubectl.


async def test_kubectl_get_shows_how_things_are(site: Site) -> None:
    relay = site.relay(replicas=2)
    listener = site.listener(worker={"image": "shop:1", "replicas": 3}, handler="shop:mail")
    plain = site.listener("plain")
    site.make_secrets()
    for resource in (relay, listener, plain):
        site.api.create(resource)
    async with site.operating():
        for resource in (relay, listener):
            await site.until_condition(resource, "WorkloadAvailable", "False", "Progressing")
        [row] = table(said(site, "get", "obr"))
        assert (row["READY"], row["REASON"], row["REPLICAS"]) == ("False", "Progressing", "0")
        Pods(site, relay).roll_out()
        Pods(site, listener).roll_out()
        insert(site, timedelta(hours=3), timedelta(seconds=5))
        insert(site, timedelta(), parked=True)
        queue = f"{site.namespace}.mail"
        publish(site, queue, 2)
        publish(site, f"{queue}.dlq", 1)
        for resource in (relay, listener, plain):
            await site.until_condition(resource)
        await site.until(lambda: site.status(relay)["backlog"] == 2, "the relay's backlog")
        await site.until(lambda: site.status(listener).get("deadLetters") == 1, "a dead letter")
        await site.until(lambda: site.status(listener)["backlog"] == 2, "the listener's backlog")

        [row] = table(said(site, "get", "obr"))
        row.pop("AGE")
        assert row.pop("OLDEST").startswith(("3h", "179m", "180m"))
        assert row == {
            "NAME": "shop",
            "READY": "True",
            "REASON": "Ready",
            "REPLICAS": "2",
            "BACKLOG": "2",
            "PARKED": "1",
        }
        mail, other = table(said(site, "get", "obl"))
        del mail["AGE"]
        assert mail == {
            "NAME": "mail",
            "READY": "True",
            "REASON": "Ready",
            "QUEUE": queue,
            "WORKERS": "3",
            "BACKLOG": "2",
            "DLQ": "1",
        }
        assert (other["NAME"], other["READY"], other["QUEUE"]) == ("plain", "True", f"{site.namespace}.plain")
        assert {"outboxrelay.outbox.dev/shop", "outboxlistener.outbox.dev/mail"} <= set(
            said(site, "get", "obr,obl", "--output", "name").split()
        )


async def test_kubectl_describe_shows_the_reason_and_the_cure(site: Site) -> None:
    relay = site.relay()
    site.api.create(relay)
    async with site.operating():
        await site.until_condition(relay, "Ready", "False", "SecretMissing")
        await site.until(lambda: site.events(relay), "an Event")
        shown = " ".join(said(site, "describe", "obr/shop").split())
    cure = f"create it with: kubectl create secret generic shop-rabbitmq --namespace {site.namespace}"
    conditions, _, events = shown.partition(" Events: ")
    assert cure in conditions
    assert "Reason: SecretMissing Status: False Type: CredentialsValid" in conditions
    assert "Warning SecretMissing" in events
    assert cure in events


async def _until_replicas(site: Site, pods: Pods, replicas: int) -> None:
    await site.until(lambda: pods.deployment["spec"]["replicas"] == replicas, f"{replicas} replicas")


async def test_kubectl_scale_reaches_the_pods(site: Site) -> None:
    relay = site.relay(replicas=1)
    listener = site.listener(worker={"image": "shop:1"}, handler="shop:mail")
    site.make_secrets()
    site.api.create(relay)
    site.api.create(listener)
    async with site.operating():
        for resource, name in (relay, "obr/shop"), (listener, "obl/mail"):
            pods = Pods(site, resource)
            await pods.until_made()
            assert "scaled" in said(site, "scale", name, "--replicas=3")
            await _until_replicas(site, pods, 3)
            pods.roll_out()
            await site.until_condition(resource)
            scale = site.api.request("GET", f"{site.path_of(resource)}/scale")
            assert scale["spec"] == {"replicas": 3}
            assert scale["status"] == {"replicas": 3, "selector": pods.selector}


# Metrics.


async def test_the_operator_counts_what_it_does(site: Site) -> None:
    registry = CollectorRegistry()

    def value(name: str, **labels: str) -> float:
        return registry.get_sample_value(f"outbox_operator_{name}", labels) or 0

    settings = Settings(
        namespaces=(site.namespace,), lease_namespace=site.namespace, relay_image="relay:1", drift_seconds=0.5
    )
    connection = await Connection.open({"KUBECONFIG": str(site.identity.kubeconfig)})
    shutdown = Shutdown()
    metrics = Metrics(registry)
    assert value("leader") == 0
    running = asyncio.create_task(
        _lead(settings, connection, metrics, Probes(0, registry=registry), shutdown)
    )
    try:
        await site.until(lambda: value("leader") == 1, "a leader")
        _, listener = await ready_pair(site)
        for kind in ("OutboxRelay", "OutboxListener"):
            done = partial(value, "reconciles_total", kind=kind, result="success")
            await site.until(done, f"a reconcile of {kind}")
            assert value("reconcile_seconds_count", kind=kind) >= 1
        assert value("broker_calls_total", method="PUT", outcome="201") >= 5
        assert value("api_calls_total", verb="patch", outcome="ok") >= 2
        assert value("drift_repairs_total", action="MakeQueue") == 0
        assert "outbox_operator_queue_depth" in {each.name for each in registry.collect()}

        site.broker("DELETE", f"queues/{{vhost}}/{site.namespace}.mail")
        await site.until(lambda: value("drift_repairs_total", action="MakeQueue") == 1, "a repair")
        calls = value("broker_calls_total", method="GET", outcome="200")
        await site.until(lambda: value("broker_calls_total", method="GET", outcome="200") > calls, "a call")
        looks = value("reconciles_total", kind="OutboxListener", result="success")
        seconds = value("reconcile_seconds_sum", kind="OutboxListener")
        site.edit(listener, bindingKeys=["user.*"])
        await site.until_condition(listener)
        await site.until(
            lambda: value("reconciles_total", kind="OutboxListener", result="success") > looks, "a reconcile"
        )
        assert value("reconcile_seconds_sum", kind="OutboxListener") > seconds
    finally:
        shutdown.requested.set()
        await running
        await connection.close()
    assert value("leader") == 0


async def test_what_fails_is_counted_as_an_error(site: Site) -> None:
    with broker_user(site, "secret", tags="management", configure="^$") as user:
        site.make_secret("shop-db", uri=site.postgres_url)
        site.make_secret("shop-rabbitmq", uri=broker_uri(site, user, "secret"))
        relay = site.relay()
        site.api.create(relay)
        async with site.operating() as operator:
            reconciles = operator.world.metrics.reconciles

            def errors() -> float:
                return sum(value for labels, value in samples(reconciles) if labels["result"] == "error")

            await site.until(lambda: errors() >= 2, "two tries that fail")


async def test_the_depth_of_the_queue_counts_who_waits(site: Site) -> None:
    async with site.operating() as operator:
        await asyncio.wait_for(operator.world.store.synced.wait(), DEADLINE_SECONDS)

        def depth() -> float:
            [(_, value)] = samples(operator.world.metrics.queue_depth)
            return value

        for number in range(3):
            operator.world.queue.add(Key("OutboxRelay", site.namespace, f"nobody-{number}"))
        assert depth() == 3
        await site.until(lambda: depth() == 0, "an empty queue")

"""The pods of relays and listeners as a user meets them: what runs, what is told of it, and what rolls it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from outbox_cli.local.ports import free_ports
from outbox_core.url_hosts import partition_hosts
from outbox_operator.children import deployment
from outbox_operator.children.pod_template import TEMPLATE_VERSION, pod_template
from outbox_operator.children.workload import Workload
from outbox_operator.operator import Operator
from outbox_operator.rbac import LEASE_RIGHTS, RESOURCE_RIGHTS
from tests.operator.accounts import database_role, database_uri
from tests.operator.control_plane.api import Manifest
from tests.operator.control_plane.identity import identity
from tests.operator.counting import several_passes
from tests.operator.pods import Pods, another_look, users_of
from tests.operator.site import Site

WORKER: Manifest = {"handler": "shop.listeners:on_user", "worker": {"image": "shop:1", "replicas": 2}}
LONG_NAME = "shop." * 44 + "x"


def relay_with_pods(site: Site, **spec: Any) -> tuple[Manifest, Pods]:
    """A relay of two replicas, with its Secrets."""
    site.make_secrets()
    relay = site.relay(**{"replicas": 2, **spec})
    site.api.create(relay)
    return relay, Pods(site, relay)


def listener_with_pods(site: Site, **spec: Any) -> tuple[Manifest, Pods]:
    """A listener of two workers, with its relay, which has no pods."""
    site.make_secrets()
    site.api.create(site.relay())
    listener = site.listener(**{**WORKER, **spec})
    site.api.create(listener)
    return listener, Pods(site, listener)


def names(site: Site, collection: str) -> set[str]:
    """The objects of a kind in the namespace."""
    group, _, plural = collection.rpartition("/")
    found = site.api.request("GET", f"/apis/{group}/namespaces/{site.namespace}/{plural}")
    return {each["metadata"]["name"] for each in found["items"]}


# What there is.


async def test_pods_get_every_host_that_the_secrets_list(site: Site) -> None:
    away = f"127.0.0.1:{free_ports(1)[0]}"
    broker, database = (_with_host(url, away) for url in (site.rabbitmq_url, site.postgres_url))
    site.make_secret("shop-rabbitmq", uri=broker)
    site.make_secret("shop-db", uri=database)
    relay = site.relay(replicas=2)
    management_url = relay["spec"]["broker"]["managementUrl"].replace("://", f"://{away},")
    relay["spec"]["broker"]["managementUrl"] = management_url
    site.api.create(relay)
    async with site.operating() as operator:
        pods = Pods(site, relay)
        await pods.until_made()
        pods.roll_out()
        await site.until_condition(relay)
        await another_look(site, operator, relay)
        assert [*pods.secrets()] == [pods.secret_name]
    assert pods.secret()["database-uri"] == database
    assert broker.rpartition("@")[2] == pods.broker_uri.rpartition("@")[2]


def _with_host(url: str, host: str) -> str:
    """The URL with another host before its own."""
    before, hosts, after = partition_hosts(url)
    return f"{before}{host},{hosts}{after}"


async def test_a_relay_with_replicas_gets_a_deployment_with_a_secret_and_a_budget(site: Site) -> None:
    relay, pods = relay_with_pods(site)
    async with site.operating():
        made = await pods.until_made()
    assert made["spec"]["replicas"] == 2
    container = pods.container
    assert (container["image"], container["command"]) == ("relay:1", ["python", "-m", "outbox_relay"])
    environment = {each["name"]: each for each in container["env"]}
    assert environment["OUTBOX_EXCHANGE_NAME"]["value"] == "outbox"
    assert environment["OUTBOX_PROVISIONED"]["value"] == "true"
    from_secret = {
        name: each["valueFrom"]["secretKeyRef"] for name, each in environment.items() if "valueFrom" in each
    }
    assert from_secret == {
        "OUTBOX_BROKER_URL": {"name": pods.secret_name, "key": "broker-uri"},
        "OUTBOX_DATABASE_URL": {"name": pods.secret_name, "key": "database-uri"},
    }
    assert pods.secret()["database-uri"] == site.postgres_url
    [secret] = pods.secrets().values()
    assert secret["immutable"] is True
    assert [owner["name"] for owner in secret["metadata"]["ownerReferences"]] == ["shop"]
    budget = site.find("PodDisruptionBudget", pods.name)
    assert budget is not None
    assert budget["spec"]["selector"]["matchLabels"] == made["spec"]["selector"]["matchLabels"]
    assert site.status(relay)["selector"] == pods.selector


async def test_a_listener_with_a_worker_gets_a_deployment_that_serves_its_queue(site: Site) -> None:
    _, pods = listener_with_pods(site)
    async with site.operating():
        await pods.until_made()
    container = pods.container
    assert container["command"] == ["python", "-m", "outbox_worker", "shop.listeners:on_user"]
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment["OUTBOX_QUEUE"] == f"{site.namespace}.mail"
    assert environment["OUTBOX_RETRY_DELAYS"] == "1,10,60,300"
    assert pods.secret().keys() == {"broker-uri"}
    assert site.find("PodDisruptionBudget", pods.name) is not None


async def test_the_budget_goes_when_one_replica_is_left_and_comes_back_with_the_second(site: Site) -> None:
    relay, pods = relay_with_pods(site)
    async with site.operating():
        await pods.until_made()
        site.edit(relay, replicas=1)
        await site.until(lambda: site.find("PodDisruptionBudget", pods.name) is None, "no budget for one pod")
        await site.until(lambda: pods.deployment["spec"]["replicas"] == 1, "one replica")
        site.edit(relay, replicas=3)
        await site.until(lambda: site.find("PodDisruptionBudget", pods.name), "a budget for three")
        await site.until(lambda: pods.deployment["spec"]["replicas"] == 3, "three replicas")


async def test_scaling_rolls_nothing(site: Site) -> None:
    relay, pods = relay_with_pods(site)
    async with site.operating():
        before = await pods.until_made()
        site.edit(relay, replicas=5)
        await site.until(lambda: pods.deployment["spec"]["replicas"] == 5, "five replicas")
    assert pods.deployment["spec"]["template"] == before["spec"]["template"]


async def test_names_of_250_characters_give_pods_with_valid_names_and_labels(site: Site) -> None:
    site.make_secrets()
    relay = site.relay(LONG_NAME, replicas=2)
    listener = site.listener(LONG_NAME, relayRef={"name": LONG_NAME}, queue="mails", **WORKER)
    site.api.create(relay)
    site.api.create(listener)
    async with site.operating():
        for owner in (relay, listener):
            pods = Pods(site, owner)
            made = await pods.until_made()
            pods.make_running_pod(f"{owner['kind'].lower()}-1")
            pods.roll_out()
            await site.until_condition(owner)
            assert len(made["metadata"]["name"]) <= 54
            assert len(users_of(site, owner)) == 1


# What is told of them.


async def test_pods_are_in_progress_until_they_are_available(site: Site) -> None:
    relay, pods = relay_with_pods(site)
    async with site.operating():
        await pods.until_made()
        said = await site.until_condition(relay, "WorkloadAvailable", "False", "Progressing")
        assert said["message"] == "0 of 2 pods are available"
        assert site.condition(relay)["reason"] == "Progressing"
        pods.report(replicas=2, updatedReplicas=2, readyReplicas=1, availableReplicas=1)
        await site.until_condition(relay, "WorkloadAvailable", "True", "Progressing")
        pods.roll_out()
        await site.until_condition(relay, "WorkloadAvailable", "True", "Available")
        await site.until_condition(relay)
        assert [site.status(relay)[count] for count in ("replicas", "readyReplicas")] == [2, 2]


@pytest.mark.parametrize(
    ("container", "reason", "words"),
    [
        pytest.param(
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such tag: shop:1"}}},
            "ImagePullBackOff",
            "no such tag: shop:1; correct the image's name",
            id="an image that is not there",
        ),
        pytest.param(
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {
                    "terminated": {
                        "exitCode": 1,
                        "message": "Traceback …\nModuleNotFoundError: No module named 'shop'\n",
                    }
                },
                "restartCount": 3,
            },
            "CrashLoop",
            "ended with exit code 1: ModuleNotFoundError: No module named 'shop'; see kubectl logs",
            id="a container that ends",
        ),
        pytest.param(
            {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "restartCount": 3},
            "CrashLoop",
            "keeps ending; see kubectl logs",
            id="a container that ends without a word, on a node that does not answer",
        ),
    ],
)
async def test_what_ails_a_pod_is_told_until_it_is_well(
    site: Site, container: Manifest, reason: str, words: str
) -> None:
    listener, pods = listener_with_pods(site)
    async with site.operating():
        await pods.until_made()
        pods.make_pod("mail-worker-1", **container)
        pods.report(replicas=2, updatedReplicas=2, unavailableReplicas=2)
        said = await site.until_condition(listener, "WorkloadAvailable", "False", reason)
        assert "pod mail-worker-1 container worker" in said["message"]
        assert words in said["message"]
        assert site.condition(listener)["reason"] == reason
        pods.end_pod("mail-worker-1")
        pods.roll_out()
        await site.until_condition(listener, "WorkloadAvailable", "True", "Available")
        await site.until_condition(listener)


async def test_a_pod_that_fails_later_is_noticed_without_a_word_from_the_deployment(site: Site) -> None:
    listener, pods = listener_with_pods(site)
    async with site.operating():
        await pods.until_made()
        pods.begin_rollout()
        await site.until_condition(listener, "WorkloadAvailable", "True", "Progressing")
        pods.make_pod("mail-worker-1", {"waiting": {"reason": "ErrImagePull", "message": "no such tag"}})
        await site.until_condition(listener, "WorkloadAvailable", "False", "ImagePullBackOff")


QUOTA = "exceeded quota: pods, limited: pods=1"


async def test_a_quota_that_forbids_pods_is_told(site: Site) -> None:
    relay, pods = relay_with_pods(site)
    async with site.operating():
        await pods.until_made()
        pods.report_condition(
            "ReplicaFailure", "True", "FailedCreate", "exceeded quota: pods, limited: pods=1"
        )
        said = await site.until_condition(relay, "WorkloadAvailable", "False", "ReplicaFailure")
        assert f"{QUOTA}; raise the quota" in said["message"]
        pods.roll_out()
        await site.until_condition(relay)


async def test_pods_that_run_are_told_of_also_while_the_broker_refuses_something(site: Site) -> None:
    listener, pods = listener_with_pods(site)
    async with site.operating():
        await pods.until_made()
        pods.roll_out()
        await site.until_condition(listener)
        site.broker("PUT", "vhost-limits/{vhost}/max-queues", {"value": 0})
        site.broker("DELETE", f"queues/{{vhost}}/{site.namespace}.mail")
        await site.until_condition(listener, "TopologyReady", "False")
        assert site.condition(listener, "WorkloadAvailable")["reason"] == "Available"
        site.broker("DELETE", "vhost-limits/{vhost}/max-queues")
        await site.until_condition(listener)


# What rolls them, and what does not.


async def test_a_changed_database_password_rolls_the_pods_and_the_old_secret_stays_until_they_have(
    site: Site,
) -> None:
    with database_role(site, "first") as role:
        site.make_secret("shop-db", uri=database_uri(site, role, "first"))
        site.make_secret("shop-rabbitmq", uri=site.rabbitmq_url)
        relay = site.relay(replicas=2)
        site.api.create(relay)
        pods = Pods(site, relay)
        async with site.operating() as operator:
            await pods.until_made()
            pods.roll_out()
            await site.until_condition(relay)
            first, uri = pods.secret_name, pods.broker_uri
            set_password(site, role, "second")
            site.change_secret("shop-db", uri=database_uri(site, role, "second"))
            second = await pods.until_another_secret(than=first)
            assert pods.secret()["database-uri"] == database_uri(site, role, "second")
            # The broker's user has nothing to do with it.
            assert pods.broker_uri == uri
            pods.begin_rollout()
            await several_passes(site, operator)
            assert pods.secrets().keys() == {first, second}
            pods.roll_out()
            await pods.until_only_secret(second)
            assert len(users_of(site, relay)) == 1
            await site.until_condition(relay)


def set_password(site: Site, role: str, password: str) -> None:
    with psycopg.connect(site.postgres_url, autocommit=True) as connection:
        change = sql.SQL("ALTER ROLE {} PASSWORD {}").format(sql.Identifier(role), sql.Literal(password))
        connection.execute(change)


async def test_a_changed_secret_of_the_broker_rolls_the_workers(site: Site) -> None:
    listener, pods = listener_with_pods(site)
    async with site.operating():
        await pods.until_made()
        pods.roll_out()
        await site.until_condition(listener)
        first = pods.secret_name
        pods.make_running_pod("mail-worker-1")
        # The same broker by another name.
        site.change_secret("shop-rabbitmq", uri=site.rabbitmq_url.replace("127.0.0.1", "localhost"))
        second = await pods.until_another_secret(than=first)
        assert "@localhost:" in pods.broker_uri
        pods.stop_pod("mail-worker-1")
        pods.roll_out()
        await site.until_condition(listener, "WorkloadAvailable", "True", "Available")
        assert pods.secrets().keys() == {first, second}
        pods.end_pod("mail-worker-1")
        await pods.until_only_secret(second)


async def test_what_does_not_matter_in_a_secret_rolls_nothing(site: Site) -> None:
    relay, pods = relay_with_pods(site)
    async with site.operating() as operator:
        await pods.until_made()
        pods.roll_out()
        await site.until_condition(relay)
        before = pods.deployment
        site.change_secret("shop-db", note="of no interest")
        site.change_secret("shop-rabbitmq", note="of no interest")
        await several_passes(site, operator)
    assert pods.deployment == before
    assert len(pods.secrets()) == 1


async def test_what_does_not_reach_the_pods_rolls_nothing(site: Site) -> None:
    listener, pods = listener_with_pods(site)
    async with site.operating():
        await pods.until_made()
        pods.roll_out()
        await site.until_condition(listener)
        before = pods.deployment
        site.edit(listener, bindingKeys=["user.created", "user.renamed"], deletionPolicy="DeleteIfEmpty")
        await site.until_condition(listener)
        assert len(site.bindings(f"{site.namespace}.mail")) == 2
        assert pods.deployment == before
        # For the end of this test.
        site.edit(listener, deletionPolicy="Retain")
        await site.until_condition(listener)


async def test_an_edit_that_reaches_the_pods_rolls_them_once(site: Site) -> None:
    listener, pods = listener_with_pods(site)
    async with site.operating() as operator:
        before = await pods.until_made()
        site.edit(listener, worker={"image": "shop:2"})
        await site.until(lambda: pods.container["image"] == "shop:2", "the new image")
        await another_look(site, operator, listener)
    assert pods.deployment["metadata"]["generation"] == before["metadata"]["generation"] + 1
    assert pods.secrets().keys() == {pods.secret_name}


# What a new operator leaves alone.


@asynccontextmanager
async def settled(site: Site, **settings: Any) -> AsyncIterator[tuple[Operator, list[Pods]]]:
    """An operator with a relay and a listener, whose pods are all available."""
    listener, workers = listener_with_pods(site)
    relay = site.relay()
    site.edit(relay, replicas=2)
    relays = Pods(site, relay)
    async with site.operating(**settings) as operator:
        for pods in (relays, workers):
            await pods.until_made()
            pods.roll_out()
        for manifest in (relay, listener):
            await site.until_condition(manifest)
        await site.until(lambda: operator.world.queue.is_idle, "an operator with nothing to do")
        yield operator, [relays, workers]


def versions(all_pods: list[Pods]) -> dict[str, str]:
    """The state of everything that the operator writes, by its name."""
    found = {}
    for pods in all_pods:
        budget = pods.site.find("PodDisruptionBudget", pods.name)
        assert budget is not None
        for each in (pods.site.get(pods.owner), pods.deployment, budget, *pods.secrets().values()):
            metadata = each["metadata"]
            found[f"{each.get('kind', 'Secret')} {metadata['name']}"] = metadata["resourceVersion"]
    return found


async def test_a_restart_of_the_operator_changes_nothing(site: Site) -> None:
    async with settled(site) as (_, all_pods):
        pass
    before, users = versions(all_pods), site.broker_users()
    async with site.operating() as operator:
        for pods in all_pods:
            await another_look(site, operator, pods.owner)
        await several_passes(site, operator)
        # What another look was asked for with is a change of the resource itself.
        changed = {f"{pods.owner['kind']} {pods.owner['metadata']['name']}" for pods in all_pods}
        after = versions(all_pods)
        assert {name for name in before if before[name] != after[name]} == changed
    assert site.broker_users() == users


async def test_a_restart_writes_nothing_to_the_status(site: Site) -> None:
    async with settled(site) as (_, all_pods):
        pass
    before = versions(all_pods)
    async with site.operating() as operator:
        await several_passes(site, operator)
        assert versions(all_pods) == before


async def test_an_upgrade_with_another_template_restarts_no_pod(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with settled(site) as (_, all_pods):
        pass
    before = [pods.deployment["spec"] for pods in all_pods]
    monkeypatch.setattr(deployment, "TEMPLATE_VERSION", TEMPLATE_VERSION + 1)

    def other_template(workload: Workload) -> Manifest:
        template = pod_template(workload)
        return {**template, "spec": {**template["spec"], "terminationGracePeriodSeconds": 99}}

    monkeypatch.setattr(deployment, "pod_template", other_template)
    async with site.operating(relay_image="relay:2") as operator:
        for pods in all_pods:
            await another_look(site, operator, pods.owner)
        assert [pods.deployment["spec"] for pods in all_pods] == before
        relays, workers = all_pods
        # It is still the operator's to scale them, and what is asked for anew is made anew.
        site.edit(relays.owner, replicas=3)
        await site.until(lambda: relays.deployment["spec"]["replicas"] == 3, "three replicas")
        assert relays.deployment["spec"]["template"] == before[0]["template"]
        site.edit(workers.owner, worker={"image": "shop:2"})
        await site.until(lambda: workers.container["image"] == "shop:2", "the new image")
        assert workers.deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 99


async def test_an_upgrade_with_another_image_of_the_relay_restarts_no_pod(site: Site) -> None:
    async with settled(site) as (_, all_pods):
        pass
    relays = all_pods[0]
    before = versions([relays])[f"Deployment {relays.name}"]
    async with site.operating(relay_image="relay:2") as operator:
        await several_passes(site, operator)
        assert versions([relays])[f"Deployment {relays.name}"] == before
        # An edit rolls the pods anyway, and brings the new image.
        site.edit(relays.owner, batchSize=7)
        await site.until(lambda: relays.container["image"] == "relay:2", "the new image")


# Whose fields they are.


async def test_a_foreign_label_survives_and_a_foreign_image_does_not(site: Site) -> None:
    async with settled(site) as (_, [relays, _]):
        theirs = {
            "metadata": {"labels": {"team": "shop"}, "annotations": {"example.org/x": "1"}},
            "spec": {"template": {"spec": {"containers": [{"name": "relay", "image": "other:1"}]}}},
        }
        path = site.path_of({"kind": "Deployment", "metadata": {"name": relays.name}})
        site.api.request("PATCH", path, theirs, "application/strategic-merge-patch+json")
        await site.until(lambda: relays.container["image"] == "relay:1", "the image as it was")
        site.edit(relays.owner, batchSize=7)
        edited = {"name": "OUTBOX_BATCH_SIZE", "value": "7"}
        await site.until(lambda: edited in relays.container["env"], "the edit in the pods")
        metadata = relays.deployment["metadata"]
        assert metadata["labels"]["team"] == "shop"
        assert metadata["annotations"]["example.org/x"] == "1"


async def test_a_secret_that_somebody_put_into_the_deployment_is_neither_used_nor_deleted(site: Site) -> None:
    async with settled(site) as (_, [relays, _]):
        ours = relays.secret_name
        point_to(relays, "shop-rabbitmq")
        await site.until(lambda: relays.secret_name == ours, "the operator's own Secret again")
        relays.roll_out()
        await site.until_condition(relays.owner)
        await relays.until_only_secret(ours)
    assert site.find("Secret", "shop-rabbitmq") is not None
    point_to(relays, "shop-rabbitmq")
    async with site.operating():
        await relays.until_another_secret(than="shop-rabbitmq")
        relays.roll_out()
        await site.until_condition(relays.owner)
        await relays.until_only_secret(relays.secret_name)
        await site.until(lambda: len(users_of(site, relays.owner)) == 1, "one user")
    assert site.find("Secret", "shop-rabbitmq") is not None


def point_to(pods: Pods, secret: str) -> None:
    """Have the pods take the broker's URL from another Secret, as a person may."""
    variable = {"name": "OUTBOX_BROKER_URL", "valueFrom": {"secretKeyRef": {"name": secret, "key": "uri"}}}
    container = {"name": pods.component, "env": [variable]}
    path = pods.site.path_of({"kind": "Deployment", "metadata": {"name": pods.name}})
    change = {"spec": {"template": {"spec": {"containers": [container]}}}}
    pods.site.api.request("PATCH", path, change, "application/strategic-merge-patch+json")


async def test_a_deployment_of_that_name_that_is_somebody_elses_is_never_taken_over(site: Site) -> None:
    theirs = {"app": "shop"}
    foreign = {
        "metadata": {"name": "shop-relay"},
        "spec": {
            "selector": {"matchLabels": theirs},
            "template": {
                "metadata": {"labels": theirs},
                "spec": {"containers": [{"name": "shop", "image": "shop:9"}]},
            },
        },
    }
    path = f"/apis/apps/v1/namespaces/{site.namespace}/deployments"
    before = site.api.request("POST", path, foreign)
    relay, pods = relay_with_pods(site)
    async with site.operating() as operator:
        said = await site.until_condition(relay, "WorkloadAvailable", "False")
        assert "Deployment shop-relay exists and is not this resource's" in said["message"]
        await several_passes(site, operator)
        assert pods.deployment == before
        assert len(users_of(site, relay)) == 1
    async with site.operating():
        await site.until_condition(relay, "WorkloadAvailable", "False")
        assert len(users_of(site, relay)) == 1
        site.api.request("DELETE", f"{path}/shop-relay")
        await site.until_condition(relay, "WorkloadAvailable", "False", "Progressing")
        assert pods.container["image"] == "relay:1"


# What cannot be had.


async def test_a_right_that_the_operator_lacks_is_named(site: Site, tmp_path: Path) -> None:
    rights = [
        right for right in (*RESOURCE_RIGHTS, *LEASE_RIGHTS) if right.kind.kind != "PodDisruptionBudget"
    ]
    roles = {site.namespace: [right.manifest() for right in rights]}
    relay, pods = relay_with_pods(site)
    lesser = replace(site, identity=identity(site.api, site.namespace, tmp_path, roles))
    async with lesser.operating():
        said = await site.until_condition(relay, "WorkloadAvailable", "False", "Forbidden")
        assert "the operator may not get poddisruptionbudgets.policy" in said["message"]
        assert f"in namespace {site.namespace}; add that to its Role" in said["message"]
        # What it may make is there.
        assert pods.deployment["spec"]["replicas"] == 2


# Neighbours: KEDA, Prometheus' operator, network policies.

AUTOSCALING = {"worker": {"image": "shop:1", "autoscaling": {"min": 1, "max": 5, "backlogPerReplica": 50}}}


async def test_without_keda_the_condition_says_so(site: Site) -> None:
    listener, pods = listener_with_pods(site, **AUTOSCALING)
    async with site.operating():
        await pods.until_made()
        pods.roll_out()
        said = await site.until_condition(listener, "WorkloadAvailable", "False", "KedaMissing")
        assert "worker.autoscaling needs KEDA, which this cluster does not have" in said["message"]
        assert pods.deployment["spec"]["replicas"] == 1


@pytest.mark.usefixtures("neighbours")
async def test_with_keda_the_replicas_are_the_scalers(site: Site) -> None:
    listener, pods = listener_with_pods(site, **AUTOSCALING)
    scalers = "keda.sh/v1alpha1/scaledobjects"
    async with site.operating(has_neighbours=True) as operator:
        await pods.until_made()
        await site.until(lambda: names(site, scalers) == {pods.name}, "a ScaledObject")
        await site.until(
            lambda: names(site, "keda.sh/v1alpha1/triggerauthentications") == {pods.name}, "how KEDA gets in"
        )
        path = site.path_of({"kind": "Deployment", "metadata": {"name": pods.name}})
        scale = {"metadata": {"name": pods.name, "namespace": site.namespace}, "spec": {"replicas": 4}}
        site.api.request("PUT", f"{path}/scale?fieldManager=keda", scale)
        pods.roll_out()
        await site.until_condition(listener)
        site.edit(listener, worker={"image": "shop:2"})
        await site.until(lambda: pods.container["image"] == "shop:2", "the new image")
        await another_look(site, operator, listener)
        assert pods.deployment["spec"]["replicas"] == 4
        assert site.find("PodDisruptionBudget", pods.name) is not None
        site.edit(listener, worker={"autoscaling": None, "replicas": 2})
        await site.until(lambda: not names(site, scalers), "the end of the ScaledObject")
        await site.until(lambda: pods.deployment["spec"]["replicas"] == 2, "as many as the resource says")


@pytest.mark.usefixtures("neighbours")
async def test_pods_are_scraped_where_prometheus_has_an_operator(site: Site) -> None:
    _, pods = relay_with_pods(site)
    monitors = "monitoring.coreos.com/v1/podmonitors"
    async with site.operating():
        await pods.until_made()
    assert names(site, monitors) == set()
    async with site.operating(has_neighbours=True):
        await site.until(lambda: names(site, monitors) == {pods.name}, "a PodMonitor")


async def test_an_object_of_somebody_else_with_a_childs_name_is_left_alone(site: Site) -> None:
    relay = site.relay(replicas=1)
    policies = f"/apis/networking.k8s.io/v1/namespaces/{site.namespace}/networkpolicies"
    foreign = {"metadata": {"name": "shop-relay"}, "spec": {"podSelector": {"matchLabels": {"app": "other"}}}}
    before = site.api.request("POST", policies, foreign)
    site.make_secrets()
    site.api.create(relay)
    async with site.operating(network_policies=True):
        said = await site.until_condition(relay, "WorkloadAvailable", "False", "Refused")
        assert said["message"].startswith("NetworkPolicy shop-relay exists and is not this resource's")
        assert site.api.request("GET", f"{policies}/shop-relay") == before
        site.api.request("DELETE", f"{policies}/shop-relay")
        await Pods(site, relay).until_made()
    made = site.api.request("GET", f"{policies}/shop-relay")
    assert made["spec"] != before["spec"]


async def test_a_network_policy_is_made_where_it_was_asked_for_and_goes_with_the_setting(site: Site) -> None:
    _, pods = relay_with_pods(site)
    policies = "networking.k8s.io/v1/networkpolicies"
    async with site.operating():
        await pods.until_made()
    assert names(site, policies) == set()
    async with site.operating(network_policies=True):
        await site.until(lambda: names(site, policies) == {pods.name}, "a NetworkPolicy")
    async with site.operating():
        await site.until(lambda: names(site, policies) == set(), "the end of the NetworkPolicy")


# What goes, and what comes back.


async def test_pods_go_with_the_worker_and_the_queue_stays(site: Site) -> None:
    listener, pods = listener_with_pods(site)
    queue = f"{site.namespace}.mail"
    async with site.operating():
        await pods.until_made()
        pods.roll_out()
        await site.until_condition(listener)
        selector = pods.selector
        pods.make_running_pod("mail-worker-1")
        site.edit(listener, worker=None, handler=None)
        await site.until(lambda: site.find("Deployment", pods.name) is None, "the end of the Deployment")
        await site.until_condition(listener)
        assert site.find("PodDisruptionBudget", pods.name) is None
        found = site.api.kubectl("get", "secrets", "-n", site.namespace, "-l", selector, "-o", "json")
        assert json.loads(found.stdout)["items"] == []
        status = site.status(listener)
        assert not status.keys() & {"replicas", "readyReplicas", "selector"}
        assert site.condition(listener, "WorkloadAvailable") == {}
        assert status["queue"] == queue
        # Pods that are about to go may have something under way.
        assert len(users_of(site, listener)) == 1
        pods.end_pod("mail-worker-1")
        await site.until(lambda: users_of(site, listener) == set(), "the end of the user")
    assert site.bindings(queue) == {("outbox", "user.created")}


async def test_a_deployment_that_is_deleted_by_hand_comes_back_as_it_was(site: Site) -> None:
    async with settled(site) as (operator, all_pods):
        for pods in all_pods:
            before, secret, users = pods.deployment, pods.secret(), users_of(site, pods.owner)
            site.delete({"kind": "Deployment", "metadata": {"name": pods.name}})
            await site.until(lambda: site.find("Deployment", pods.name), "the Deployment again")  # noqa: B023
            assert pods.deployment["metadata"]["uid"] != before["metadata"]["uid"]
            assert pods.deployment["spec"] == before["spec"]
            assert pods.secret() == secret
            pods.roll_out()
            await site.until_condition(pods.owner)
            await another_look(site, operator, pods.owner)
            assert users_of(site, pods.owner) == users


WITHOUT_SECRET = {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}}


async def test_a_secret_that_is_deleted_by_hand_is_made_again_when_pods_need_it(site: Site) -> None:
    async with settled(site) as (_, all_pods):
        for pods in all_pods:
            before, secret = pods.deployment, pods.secret()
            name = pods.secret_name
            site.delete({"kind": "Secret", "metadata": {"name": name}})
            pods.make_pod(f"{pods.name}-1", WITHOUT_SECRET)
            pods.report(readyReplicas=1, availableReplicas=1, unavailableReplicas=1)
            await site.until(lambda: site.find("Secret", name), "the Secret again")  # noqa: B023
            assert pods.secret() == secret
            pods.end_pod(f"{pods.name}-1")
            pods.roll_out()
            await site.until_condition(pods.owner)
            assert pods.deployment["spec"] == before["spec"]


async def test_a_secret_that_went_while_no_operator_ran_is_replaced_by_another(site: Site) -> None:
    async with settled(site) as (_, all_pods):
        pass
    lost = {pods.name: pods.secret_name for pods in all_pods}
    for name in lost.values():
        site.delete({"kind": "Secret", "metadata": {"name": name}})
    async with site.operating() as operator:
        for pods in all_pods:
            name = await pods.until_another_secret(than=lost[pods.name])
            await another_look(site, operator, pods.owner)
            assert pods.secret_name == name
            # Pods that run have the old user, until the last of them is gone.
            assert len(users_of(site, pods.owner)) == 2
            pods.roll_out()
            await site.until_condition(pods.owner)
            await site.until(lambda: len(users_of(site, pods.owner)) == 1, "one user")  # noqa: B023
            assert pods.secrets().keys() == {name}

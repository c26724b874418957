"""Calls to a real API server, by somebody with few rights."""

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncIterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import (
    ClusterError,
    ConflictError,
    ForbiddenError,
    NotFoundError,
    NotLeaderError,
    RefusedError,
    TimedOutError,
    UnreachableError,
)
from outbox_operator.cluster.events import Recorder, Reference, record
from outbox_operator.cluster.fence import Fence, uptime
from outbox_operator.cluster.kinds import DEPLOYMENT, LISTENER, POD, RELAY, SECRET, Manifest
from outbox_operator.cluster.store import MANAGED
from outbox_operator.resources.metadata import Metadata
from tests.operator import manifests
from tests.operator.control_plane.api import Api
from tests.operator.control_plane.bridge import bridge
from tests.operator.control_plane.identity import Identity, identity, rule
from tests.operator.control_plane.waiting import until

_RIGHTS = (
    rule("outbox.dev", "outboxrelays outboxlisteners", "get list"),
    rule("outbox.dev", "outboxrelays/status", "patch"),
    rule("apps", "deployments", "get list create patch delete"),
    rule("", "secrets", "get create update"),
    rule("", "pods", "list"),
    rule("", "pods/log", "get"),
    rule("", "events", "create"),
)

Calls = list[tuple[str, str]]


@pytest.fixture
def operator(api: Api, namespace: str, tmp_path: Path) -> Identity:
    return identity(api, namespace, tmp_path, {namespace: _RIGHTS})


@pytest.fixture
async def connection(operator: Identity) -> AsyncIterator[Connection]:
    connection = await Connection.open({"KUBECONFIG": str(operator.kubeconfig)})
    yield connection
    await connection.close()


@pytest.fixture
def calls() -> Calls:
    return []


@pytest.fixture
def cluster(connection: Connection, calls: Calls) -> Cluster:
    return Cluster(connection, on_call=lambda verb, outcome: calls.append((verb, outcome)))


def _deployment(namespace: str, name: str = "shop", **spec: Any) -> Manifest:
    labels = dict([MANAGED.split("=")])
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "main", "image": "shop:1"}]},
            },
            **spec,
        },
    }


def _secret(namespace: str, **data: str) -> Manifest:
    encoded = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
    metadata = {"namespace": namespace, "name": "shop"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}


def _relay(api: Api, namespace: str) -> Manifest:
    manifest = deepcopy(manifests.RELAY)
    manifest["metadata"]["namespace"] = namespace
    return api.create(manifest)


async def test_an_object_that_is_not_there_is_none(cluster: Cluster, namespace: str, calls: Calls) -> None:
    assert await cluster.get(DEPLOYMENT, namespace, "shop") is None
    assert calls == [("get", "not_found")]


async def test_what_is_applied_is_there(cluster: Cluster, namespace: str, calls: Calls) -> None:
    made = await cluster.apply(_deployment(namespace, replicas=2), force=False)
    again = await cluster.apply(_deployment(namespace, replicas=2), force=False)
    assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    found = await cluster.get(DEPLOYMENT, namespace, "shop")
    assert found is not None
    assert found["spec"]["replicas"] == 2
    assert [entry["manager"] for entry in found["metadata"]["managedFields"]] == ["outbox-operator"]
    assert calls == [("apply", "ok"), ("apply", "ok"), ("get", "ok")]


async def test_a_field_of_another_manager_is_taken_by_force_alone(
    cluster: Cluster, namespace: str, calls: Calls
) -> None:
    await cluster.apply(_deployment(namespace, replicas=5), force=False, manager="scaler")
    with pytest.raises(
        ConflictError, match=rf'Deployment {namespace}/shop: .*conflict with "scaler".*\.spec\.replicas'
    ):
        await cluster.apply(_deployment(namespace, replicas=2), force=False)
    assert (await cluster.apply(_deployment(namespace, replicas=2), force=True))["spec"]["replicas"] == 2
    assert calls == [("apply", "ok"), ("apply", "conflict"), ("apply", "ok")]


async def test_a_list_may_be_by_label_and_of_metadata_alone(cluster: Cluster, namespace: str) -> None:
    foreign = _deployment(namespace, "foreign")
    del foreign["metadata"]["labels"]
    await cluster.apply(foreign, force=False)
    await cluster.apply(_deployment(namespace), force=False)
    assert len(await cluster.list(DEPLOYMENT, namespace)) == 2
    [found] = await cluster.list(DEPLOYMENT, namespace, MANAGED, metadata_only=True)
    assert found["metadata"]["name"] == "shop"
    assert found["metadata"]["resourceVersion"]
    assert "spec" not in found


@pytest.mark.parametrize("metadata_only", [False, True])
async def test_a_list_may_be_empty(cluster: Cluster, namespace: str, metadata_only: bool) -> None:
    assert await cluster.list(LISTENER, namespace, metadata_only=metadata_only) == []


async def test_a_patch_of_the_status_leaves_the_generation(
    api: Api, cluster: Cluster, namespace: str
) -> None:
    _relay(api, namespace)
    patched = await cluster.patch(RELAY, namespace, "shop", {"status": {"backlog": 3}}, "status")
    assert patched["status"]["backlog"] == 3
    assert patched["metadata"]["generation"] == 1


@pytest.mark.parametrize("uid", ["its own", "another's"])
async def test_a_status_is_written_to_the_object_that_it_is_about_alone(
    api: Api, cluster: Cluster, namespace: str, uid: str
) -> None:
    _relay(api, namespace)
    made = await cluster.get(RELAY, namespace, "shop")
    assert made is not None
    metadata = Metadata.model_validate(made["metadata"])
    operations = [{"op": "add", "path": "/status", "value": {"backlog": 3}}]
    if uid == "its own":
        written = await cluster.patch_status(RELAY, metadata, operations)
        assert written["status"]["backlog"] == 3
        return
    with pytest.raises(NotFoundError, match="another object has its name by now"):
        await cluster.patch_status(RELAY, metadata.model_copy(update={"uid": "another"}), operations)
    found = await cluster.get(RELAY, namespace, "shop")
    assert found is not None
    assert "status" not in found


async def test_a_patch_of_what_is_gone_says_so(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(NotFoundError, match=f'OutboxRelay {namespace}/shop: .*"shop" not found'):
        await cluster.patch(RELAY, namespace, "shop", {"status": {"backlog": 3}}, "status")


async def test_a_delete_of_what_is_gone_succeeds(cluster: Cluster, namespace: str) -> None:
    await cluster.delete(DEPLOYMENT, namespace, "shop", None)
    await cluster.delete(DEPLOYMENT, namespace, "shop", "some-uid")


async def test_a_delete_with_a_uid_leaves_another_of_that_name(cluster: Cluster, namespace: str) -> None:
    made = await cluster.apply(_deployment(namespace), force=False)
    await cluster.delete(DEPLOYMENT, namespace, "shop", "another")
    assert await cluster.get(DEPLOYMENT, namespace, "shop")
    await cluster.delete(DEPLOYMENT, namespace, "shop", made["metadata"]["uid"])
    assert await cluster.get(DEPLOYMENT, namespace, "shop") is None


async def test_a_write_over_somebody_elses_is_a_conflict(cluster: Cluster, namespace: str) -> None:
    made = await cluster.create(_secret(namespace, a="1"))
    with pytest.raises(ConflictError):
        await cluster.create(_secret(namespace, a="1"))
    await cluster.replace({**made, "data": _secret(namespace, a="2")["data"]})
    with pytest.raises(ConflictError, match=f"Secret {namespace}/shop: Conflict"):
        await cluster.replace({**made, "data": _secret(namespace, a="3")["data"]})


async def test_a_missing_right_is_named(cluster: Cluster, namespace: str, calls: Calls) -> None:
    with pytest.raises(
        ForbiddenError,
        match=f"Secret {namespace}/shop: the operator may not delete secrets in namespace {namespace}; "
        "add that to its Role",
    ):
        await cluster.delete(SECRET, namespace, "shop", None)
    with pytest.raises(
        ForbiddenError, match=r"not list outboxrelays\.outbox\.dev in all namespaces; .*ClusterRole"
    ):
        await cluster.list(RELAY, None)
    assert calls == [("delete", "forbidden"), ("list", "forbidden")]


async def test_what_the_server_refuses_it_says_why(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(
        RefusedError, match=rf"Deployment {namespace}/shop: .*spec\.replicas: Invalid value: -1"
    ):
        await cluster.apply(_deployment(namespace, replicas=-1), force=False)


@pytest.mark.parametrize(
    ("affinity", "complaint"),
    [
        ({"podAffinitee": {}}, r"podAffinitee: field not declared in schema"),
        ({"podAffinity": []}, r"podAffinity: expected map, got"),
    ],
    ids=["misspelt", "of another type"],
)
async def test_a_field_that_is_wrong_deep_down_is_refused_and_named(
    cluster: Cluster, namespace: str, calls: Calls, affinity: Manifest, complaint: str
) -> None:
    wrong = _deployment(namespace)
    wrong["spec"]["template"]["spec"]["affinity"] = affinity
    path = r"\.spec\.template\.spec\.affinity\."
    with pytest.raises(RefusedError, match=rf"^Deployment {namespace}/shop: {path}{complaint}"):
        await cluster.apply(wrong, force=False)
    assert calls == [("apply", "refused")]
    assert await cluster.get(DEPLOYMENT, namespace, "shop") is None


async def test_an_unknown_token_is_told_to_be_so(operator: Identity, namespace: str) -> None:
    config = yaml.safe_load(operator.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = f"{operator.token}x"
    operator.kubeconfig.write_text(yaml.safe_dump(config))
    connection = await Connection.open({"KUBECONFIG": str(operator.kubeconfig)})
    with pytest.raises(ForbiddenError, match="does not know who asks"):
        await Cluster(connection).get(SECRET, namespace, "shop")
    await connection.close()


async def test_the_installed_groups_are_known(cluster: Cluster) -> None:
    groups = await cluster.api_groups()
    assert {"apps", "outbox.dev"} <= groups
    assert "not-installed.example" not in groups


async def test_a_server_that_is_away_is_unreachable(operator: Identity, namespace: str) -> None:
    async with bridge(operator.kubeconfig) as (way, kubeconfig):
        connection = await Connection.open({"KUBECONFIG": str(kubeconfig)})
        cluster = Cluster(connection)
        assert await cluster.get(SECRET, namespace, "shop") is None
        await way.cut()
        with pytest.raises(
            UnreachableError, match=f"Secret {namespace}/shop: the API server cannot be reached"
        ):
            await cluster.get(SECRET, namespace, "shop")
        await way.open()
        assert await cluster.get(SECRET, namespace, "shop") is None
        await connection.close()


async def test_a_write_ends_before_the_fence_closes(operator: Identity, namespace: str) -> None:
    config = yaml.safe_load(operator.kubeconfig.read_text())
    # It takes connections and never says anything.
    with socket.create_server(("127.0.0.1", 0)) as server:
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{server.getsockname()[1]}"
        operator.kubeconfig.write_text(yaml.safe_dump(config))
        connection = await Connection.open({"KUBECONFIG": str(operator.kubeconfig)})
        fence = Fence(limit_seconds=60)
        fence.open(since=uptime() - 59.9)
        with pytest.raises(TimedOutError, match="does not answer in time"):
            await Cluster(connection, fence=fence).create(_secret(namespace))
        await connection.close()


async def test_whoever_does_not_lead_reads_and_does_not_write(
    connection: Connection, cluster: Cluster, namespace: str, calls: Calls
) -> None:
    fence = Fence(limit_seconds=60)
    fenced = Cluster(connection, fence=fence, on_call=lambda verb, outcome: calls.append((verb, outcome)))
    for write in (
        fenced.create(_secret(namespace)),
        fenced.replace(_secret(namespace)),
        fenced.apply(_deployment(namespace), force=True),
        fenced.patch(RELAY, namespace, "shop", {}, "status"),
        fenced.delete(DEPLOYMENT, namespace, "shop", None),
    ):
        with pytest.raises(NotLeaderError):
            await write
    assert calls == [(verb, "not_leader") for verb in ("create", "update", "apply", "patch", "delete")]
    assert await fenced.list(DEPLOYMENT, namespace) == []
    fence.open(since=uptime())
    await fenced.create(_secret(namespace))


async def test_an_event_is_shown_with_its_object(api: Api, cluster: Cluster, namespace: str) -> None:
    relay = _relay(api, namespace)
    about = Reference.to(RELAY, Metadata.model_validate(relay["metadata"]))
    await record(cluster, about, "Warning", "Unreachable", "the broker is away")
    await record(cluster, about, "Normal", "Ready", "all is well")
    described = api.kubectl("describe", "outboxrelay", "shop", "-n", namespace).stdout
    assert "Warning  Unreachable" in described
    assert "the broker is away" in described
    assert "outbox-operator" in described


async def test_events_are_written_one_after_the_other_while_nobody_waits(
    api: Api, cluster: Cluster, namespace: str
) -> None:
    relay = _relay(api, namespace)
    about = Reference.to(RELAY, Metadata.model_validate(relay["metadata"]))
    recorder = Recorder(cluster)
    nowhere = Reference(RELAY, "no-such-namespace", "shop", "u")
    recorder.add(about, "Warning", "Unreachable", "the broker is away")
    recorder.add(nowhere, "Normal", "Lost", "what cannot be written")
    recorder.add(about, "Normal", "Ready", "all is well")

    def reasons() -> list[str]:
        found = api.request("GET", f"/api/v1/namespaces/{namespace}/events")["items"]
        written = sorted(found, key=lambda each: int(each["metadata"]["resourceVersion"]))
        return [each["reason"] for each in written]

    assert reasons() == []
    writing = asyncio.create_task(recorder.run())
    await until("both are written", lambda: len(reasons()) == 2)
    writing.cancel()
    await asyncio.wait([writing])
    assert reasons() == ["Unreachable", "Ready"]


async def test_events_wait_while_there_is_something_better_to_do(
    api: Api, cluster: Cluster, namespace: str
) -> None:
    relay = _relay(api, namespace)
    about = Reference.to(RELAY, Metadata.model_validate(relay["metadata"]))
    work = [1, 2, 3]
    seen_at_work: list[int] = []

    def is_busy() -> bool:
        """Some work is done at each look; how many Events were there until then is noted."""
        seen_at_work.append(len(api.request("GET", f"/api/v1/namespaces/{namespace}/events")["items"]))
        return bool(work and work.pop())

    recorder = Recorder(cluster, is_busy)
    recorder.add(about, "Normal", "Ready", "all is well")
    writing = asyncio.create_task(recorder.run())
    await until(
        "it is written",
        lambda: api.request("GET", f"/api/v1/namespaces/{namespace}/events")["items"],
    )
    writing.cancel()
    await asyncio.wait([writing])
    assert seen_at_work == [0, 0, 0, 0]


async def test_an_event_that_cannot_be_written_harms_nobody(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    about = Reference(RELAY, "no-such-namespace", "shop", "u")
    await record(cluster, about, "Normal", "Ready", "all is well")
    assert "event not written" in caplog.text


@pytest.fixture
async def kubelet(api: Api, namespace: str) -> AsyncIterator[dict[str, str]]:
    """Stands for the node of a pod, for there are no nodes: what it answers to requests for logs."""
    logs: dict[str, str] = {}

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = (await reader.readuntil(b"\r\n\r\n")).decode()
        previous = "previous" if "previous=true" in request.split("\r\n")[0] else "current"
        status, text = (
            ("200 OK", logs[previous]) if previous in logs else ("404 Not Found", "no such container")
        )
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(text.encode())}\r\nConnection: close\r\n\r\n"
        writer.write((head + text).encode())
        await writer.drain()
        writer.close()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(api.control_plane.folder / "server.pem")
    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    node = f"node-{namespace}"
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    api.request("POST", "/api/v1/nodes", {"metadata": {"name": node}})
    api.request("PATCH", f"/api/v1/nodes/{node}/status", {"status": status}, "application/merge-patch+json")
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "shop:1"}]}
    pod = {"metadata": {"name": "shop", "labels": {"app": "shop"}}, "spec": spec}
    api.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    yield logs
    server.close()
    await server.wait_closed()
    api.request("DELETE", f"/api/v1/nodes/{node}")


async def test_the_last_line_of_a_container_that_ended_is_told_first(
    cluster: Cluster, namespace: str, kubelet: dict[str, str]
) -> None:
    [pod] = await cluster.pods_of(namespace, "app=shop")
    assert pod["metadata"]["name"] == "shop"
    assert await cluster.last_log_line(namespace, "shop", "main") is None
    kubelet["current"] = "starting\n"
    assert await cluster.last_log_line(namespace, "shop", "main") == "starting"
    kubelet["previous"] = "Traceback:\nKeyError: 'shop'\n\n"
    assert await cluster.last_log_line(namespace, "shop", "main") == "KeyError: 'shop'"


async def test_a_pod_that_is_gone_has_no_last_line(cluster: Cluster, namespace: str) -> None:
    assert await cluster.list(POD, namespace) == []
    assert await cluster.last_log_line(namespace, "shop", "main") is None


async def test_a_pod_gets_in_with_its_service_account(
    api: Api, operator: Identity, namespace: str, tmp_path: Path
) -> None:
    url = api.control_plane.url
    (tmp_path / "token").write_text(operator.token)
    (tmp_path / "ca.crt").write_bytes((api.control_plane.folder / "ca.pem").read_bytes())
    host, port = url.removeprefix("https://").split(":")
    environment = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    connection = await Connection.open(environment, service_account=tmp_path)
    assert await Cluster(connection).list(RELAY, namespace) == []
    credentials = await connection.credentials()
    assert credentials.server == url
    assert credentials.authorization == f"bearer {operator.token}"
    assert operator.token not in repr(credentials)
    await connection.close()


@pytest.mark.parametrize(
    "environment",
    [
        {"KUBECONFIG": "no-such-file"},
        {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "1"},
    ],
)
async def test_no_way_to_a_cluster_says_what_to_do(environment: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="no way to a cluster .*or set KUBECONFIG"):
        await Connection.open(environment, service_account=tmp_path)

"""The chart on a real API server: each object is taken, and the operator runs under its roles."""

import asyncio
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml

from outbox_cli.local import Services
from outbox_cli.local.services import to_stderr
from outbox_operator.checkup import CheckupError, see_leader
from outbox_operator.cluster.client import Cluster
from outbox_operator.cluster.connection import Connection
from outbox_operator.cluster.errors import ForbiddenError
from outbox_operator.cluster.kinds import LEASE, SECRET
from outbox_operator.cluster.leadership import Leadership, Timing
from outbox_operator.crds import DEFINITIONS
from outbox_operator.resources import API_GROUP
from outbox_operator.settings import Settings
from tests.chart.helm import CHART, RELEASE, Helm, Manifest, only
from tests.chart.variants import variants
from tests.cluster.programs import find_helm
from tests.operator.control_plane.api import Api, RefusedError
from tests.operator.control_plane.identity import Identity
from tests.operator.neighbours import PROMETHEUS_RULE, install
from tests.operator.site import Site

RESTRICTED = "pod-security.kubernetes.io/enforce"
_DEADLINE_SECONDS = 30
_POLL_SECONDS = 0.05
_BUSY = Timing(lease_seconds=30, fence_seconds=20, renew_seconds=0.2)


@pytest.fixture(scope="session")
def helm(request: pytest.FixtureRequest, api: Api, tmp_path_factory: pytest.TempPathFactory) -> Helm:
    """Helm 3 unless a test asks for another, with the test's cluster."""
    capture = request.config.pluginmanager.getplugin("capturemanager")

    def progress(line: str) -> None:
        with capture.global_and_fixture_disabled():
            to_stderr(line)

    return Helm(
        find_helm(os.environ, progress, getattr(request, "param", 3)),
        tmp_path_factory.mktemp("helm"),
        api.control_plane.kubeconfig,
    )


@pytest.fixture(scope="session")
def monitoring(api: Api, neighbours: None) -> None:
    """Prometheus' kinds, as far as anything may be in them."""
    install(api, [PROMETHEUS_RULE])


@pytest.fixture
def restricted(api: Api, namespace: str) -> str:
    """A namespace that takes no pod but those of the standard "restricted"."""
    labels = {"metadata": {"labels": {RESTRICTED: "restricted"}}}
    api.request("PATCH", f"/api/v1/namespaces/{namespace}", labels, "application/merge-patch+json")
    return namespace


@pytest.mark.parametrize("name", variants())
def test_every_object_is_taken_by_the_api_server(
    api: Api, helm: Helm, monitoring: None, namespace: str, name: str
) -> None:
    values = variants((namespace, "default"))[name]
    text = helm.text(values, namespace=namespace)
    options = ("--server-side", "--force-conflicts", "--dry-run=server")
    done = api.kubectl("apply", *options, "-f", "-", text=text)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("(server dry run)") == text.count("\nkind: ") > 2


@pytest.mark.parametrize("name", ["defaults", "dressed", "placed"])
def test_its_pods_pass_the_standard_restricted(api: Api, helm: Helm, restricted: str, name: str) -> None:
    manifests = helm.render(variants()[name], namespace=restricted)
    # The admission of a pod wants its account to be there.
    account = only(manifests, "ServiceAccount")
    api.request("POST", f"/api/v1/namespaces/{restricted}/serviceaccounts", account)
    for manifest in manifests:
        match manifest["kind"]:
            case "Deployment":
                template = manifest["spec"]["template"]
                pod = {**template, "metadata": {**template["metadata"], "name": "operator"}}
            case "Pod":
                pod = manifest
            case _:
                continue
        api.request("POST", f"/api/v1/namespaces/{restricted}/pods?dryRun=All&fieldValidation=Strict", pod)
    with pytest.raises(RefusedError, match="violates PodSecurity"):
        pod["spec"]["securityContext"] = {}
        api.request("POST", f"/api/v1/namespaces/{restricted}/pods?dryRun=All", pod)


async def test_the_operator_runs_under_the_roles_of_an_installation(installed: Site) -> None:
    relay, listener = installed.relay(replicas=1), installed.listener()
    installed.api.create(relay)
    installed.api.create(listener)
    async with installed.operating():
        await installed.until_condition(relay, "CredentialsValid", "False", "SecretMissing")
        installed.make_secrets()
        await installed.until_condition(listener)
        await installed.until(lambda: installed.find("Deployment", "shop-relay"), "the relay's Deployment")
        # It is watched, though nothing may be listed.
        installed.change_secret("shop-db", uri="postgresql://nobody:x@127.0.0.1:1/shop")
        await installed.until_condition(relay, "CredentialsValid", "False")
        installed.delete(relay)


async def test_secrets_that_were_not_named_may_not_be_watched(installed: Site) -> None:
    async with _cluster(installed.identity) as cluster:
        assert await cluster.get(SECRET, installed.namespace, "shop-db") is None
        with pytest.raises(ForbiddenError):
            async with cluster.watch(SECRET, installed.namespace, "another"):
                pass
        with pytest.raises(ForbiddenError):
            await cluster.list(SECRET, installed.namespace)
        with pytest.raises(ForbiddenError):
            await cluster.get(LEASE, installed.namespace, "another")


async def test_the_test_of_the_chart_passes_when_somebody_leads(installed: Site) -> None:
    async with _cluster(installed.identity) as cluster:
        leadership = Leadership(cluster, installed.namespace, RELEASE, "pod-1", _BUSY)
        leading = asyncio.create_task(leadership.lead(_work))
        try:
            code, said = await _checkup(installed)
        finally:
            leading.cancel()
            await asyncio.wait([leading])
    assert code == 0, said
    assert f"resources are served kind=OutboxListener where={installed.namespace} count=0" in said
    assert "an operator leads holder=pod-1" in said


async def test_the_test_of_the_chart_says_that_nobody_leads(installed: Site) -> None:
    settings = Settings(lease_namespace=installed.namespace, lease_name=RELEASE)
    async with _cluster(installed.identity) as cluster:
        with pytest.raises(CheckupError, match="no operator leads; look at the pods' logs"):
            await see_leader(cluster, settings, patience_seconds=0.1)


async def test_the_test_of_the_chart_says_which_right_is_missing(installed: Site) -> None:
    code, said = await _checkup(installed, OUTBOX_NAMESPACES="kube-system")
    assert code == 1
    assert "OutboxRelays in kube-system" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("helm", [3, 4], ids=["helm3", "helm4"], indirect=True)
def test_an_upgrade_and_an_uninstallation_leave_alone_what_belongs_to_users(
    installed: Site, helm: Helm, tmp_path: Path
) -> None:
    relay = installed.relay()
    installed.api.create(relay)
    child = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "shop-relay", "labels": {"app.kubernetes.io/managed-by": "outbox-operator"}},
        "spec": {
            "selector": {"matchLabels": {"app": "relay"}},
            "template": {
                "metadata": {"labels": {"app": "relay"}},
                "spec": {"containers": [{"name": "relay", "image": "relay:1"}]},
            },
        },
    }
    installed.api.request("POST", f"/apis/apps/v1/namespaces/{installed.namespace}/deployments", child)
    before = [installed.get(relay), installed.get(child)]
    definitions = _definitions(installed.api)

    newer = tmp_path / "outbox-operator"
    shutil.copytree(CHART, newer)
    head = newer / "Chart.yaml"
    head.write_text(head.read_text().replace("ersion: 0.1.0", "ersion: 0.2.0"))
    helm.run("upgrade", RELEASE, str(newer), "--namespace", installed.namespace, "--reuse-values")
    operator = installed.find("Deployment", RELEASE)
    assert operator is not None
    [container] = operator["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "outbox-operator:0.2.0"
    assert [installed.get(relay), installed.get(child)] == before

    helm.run("uninstall", RELEASE, "--namespace", installed.namespace)
    assert installed.find("Deployment", RELEASE) is None
    assert [installed.get(relay), installed.get(child)] == before
    assert _definitions(installed.api) == definitions
    _install(helm, installed.namespace)
    assert [installed.get(relay), installed.get(child)] == before


def test_the_notes_say_two_commands_that_work(api: Api, helm: Helm, namespace: str) -> None:
    notes = _install(helm, namespace).partition("NOTES:\n")[2]
    assert f"helm test {RELEASE} --namespace {namespace}\n" in notes
    command, _, rest = notes.partition("kubectl apply ")[2].partition(" <<MANIFEST\n")
    assert command == f"--namespace {namespace} -f -"
    manifest = yaml.safe_load(rest.partition("   MANIFEST\n")[0])
    done = api.kubectl("apply", *command.split(), "--dry-run=server", text=yaml.safe_dump(manifest))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture
def installed(
    *,
    api: Api,
    helm: Helm,
    namespace: str,
    services: Services,
    rabbitmq_url: str,
    postgres_url: str,
    tmp_path: Path,
) -> Site:
    """A site whose operator is whom an installation into its namespace makes."""
    _install(helm, namespace)
    who = _service_account(api, namespace, tmp_path)
    return Site(api, namespace, who, services, rabbitmq_url, postgres_url)


def _install(helm: Helm, namespace: str) -> str:
    """Install the chart; what Helm says then."""
    values = {
        "watchNamespaces": [namespace],
        "rbac": {"secretNames": ["shop-db", "shop-rabbitmq"]},
        # The definitions are there, and other tests use them.
        "crds": {"install": False},
    }
    return helm.run("install", RELEASE, str(CHART), "--namespace", namespace, values=values)


def _service_account(api: Api, namespace: str, folder: Path) -> Identity:
    """The account of an installation, once the API server knows of its roles."""
    asked: Manifest = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{RELEASE}/token"
    token = str(api.request("POST", path, asked)["status"]["token"])
    user = f"system:serviceaccount:{namespace}:{RELEASE}"
    plane = api.control_plane
    config = yaml.safe_load(plane.kubeconfig.read_text())
    config["users"] = [{"name": each["name"], "user": {"token": token}} for each in config["users"]]
    file = folder / "operator.kubeconfig"
    file.write_text(yaml.safe_dump(config))
    file.chmod(0o600)
    last = {"namespace": namespace, "group": "", "resource": "events", "verb": "create"}
    lease = {"namespace": namespace, "group": LEASE.group, "resource": "leases", "verb": "create"}
    for attributes in (last, lease):
        _until(partial(_is_allowed, api, user, attributes), f"{user} to have {attributes}")
    return Identity(user, token, file)


async def _checkup(site: Site, **changes: str) -> tuple[int | None, str]:
    """Run what the chart's test pod runs, as it is told to; its code, and what it says."""
    operator = site.find("Deployment", RELEASE)
    assert operator is not None
    [container] = operator["spec"]["template"]["spec"]["containers"]
    told = {variable["name"]: variable.get("value", "") for variable in container["env"]}
    kubeconfig = str(site.identity.kubeconfig)
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "outbox_operator.checkup",
        env={"PATH": os.environ["PATH"], "KUBECONFIG": kubeconfig, **told, **changes},
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await process.communicate()
    return process.returncode, said.decode()


def _definitions(api: Api) -> str:
    return api.kubectl(
        "get", "crd", *(f"{each.plural}.{API_GROUP}" for each in DEFINITIONS), "-o", "yaml"
    ).stdout


async def _work() -> None:
    await asyncio.Event().wait()


@asynccontextmanager
async def _cluster(who: Identity) -> AsyncIterator[Cluster]:
    connection = await Connection.open({"KUBECONFIG": str(who.kubeconfig)})
    try:
        yield Cluster(connection)
    finally:
        await connection.close()


def _is_allowed(api: Api, user: str, attributes: dict[str, str]) -> bool:
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    answer = api.request("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(_POLL_SECONDS)

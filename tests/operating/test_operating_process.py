"""`python -m outbox_operator` as a pod runs it: one of several leads, and what is wrong is one line."""

import signal
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from pathlib import Path

import pytest

from outbox_cli.local import Services
from outbox_cli.local.services import to_stderr
from outbox_operator.broker.snapshot import INSTALLATION
from outbox_operator.cluster.kinds import LEASE, path
from outbox_operator.crds import DEFINITIONS
from outbox_operator.rbac import LEASE_RIGHTS, RESOURCE_RIGHTS
from tests.integration.relay_process import RelayProcess, Result, module_process
from tests.operator.control_plane.api import Api, Manifest
from tests.operator.control_plane.identity import Rule, identity
from tests.operator.control_plane.server import control_plane
from tests.operator.site import Site

_LEADS = "outbox_operator_leader 1.0"
_STANDS_BY = "outbox_operator_leader 0.0"
_LEASE_RULES = [right.manifest() for right in LEASE_RIGHTS]
_RESOURCE_RULES = [right.manifest() for right in RESOURCE_RIGHTS]


def _operator(site: Site, **variables: str) -> AbstractAsyncContextManager[RelayProcess]:
    return module_process(
        "outbox_operator",
        variables={
            "KUBECONFIG": str(site.identity.kubeconfig),
            "OUTBOX_NAMESPACES": site.namespace,
            "OUTBOX_LEASE_NAMESPACE": site.namespace,
            "OUTBOX_DRIFT_SECONDS": "1",
            **variables,
        },
    )


def _lease(site: Site) -> Manifest:
    return site.api.request("GET", path(LEASE, site.namespace, "outbox-operator"))


def _holder(site: Site) -> str:
    return str(_lease(site)["spec"].get("holderIdentity", ""))


async def _ended(*arguments: str, **variables: str) -> Result:
    async with module_process("outbox_operator", *arguments, variables=variables) as started:
        return await started.ended()


def _assert_one_line(result: Result, *words: str) -> None:
    """It ended with one complaint, without a traceback."""
    assert result.status == 1
    assert "Traceback" not in result.errors
    assert len(result.complaints) == 1, result.errors
    [complaint] = result.complaints
    for word in words:
        assert word in complaint, complaint
    assert result.errors.splitlines()[-1] == complaint


# What it is told.


async def test_it_tells_its_version_and_its_variables() -> None:
    told = await _ended("--version")
    assert (told.status, told.output.strip()) == (0, version("outbox-operator"))
    told = await _ended("--help")
    assert told.status == 0
    for variable in ("KUBECONFIG", "OUTBOX_NAMESPACES", "OUTBOX_LEASE_NAMESPACE", "OUTBOX_GIVE_UP_SECONDS"):
        assert variable in told.output
    assert (await _ended("--verbose")).status == 2


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("OUTBOX_HANDS", "0", "hands must be more than 0, got 0"),
        ("OUTBOX_HANDS", "many", "OUTBOX_HANDS='many'"),
        ("OUTBOX_DRIFT_SECONDS", "soon", "OUTBOX_DRIFT_SECONDS='soon'"),
        ("OUTBOX_NETWORK_POLICIES", "perhaps", "OUTBOX_NETWORK_POLICIES='perhaps': write true or false"),
        ("OUTBOX_PROBE_PORT", "http", "OUTBOX_PROBE_PORT='http': write a port's number"),
        ("OUTBOX_LOG_FORMAT", "xml", "OUTBOX_LOG_FORMAT='xml': write text or json"),
    ],
)
async def test_a_wrong_setting_is_one_line(variable: str, value: str, words: str) -> None:
    _assert_one_line(await _ended(**{variable: value}), words)


@pytest.mark.parametrize("content", [None, "{", "a: b"], ids=["no file", "no YAML", "no kubeconfig"])
async def test_a_wrong_kubeconfig_is_one_line(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "kubeconfig"
    if content is not None:
        file.write_text(content)
    result = await _ended(KUBECONFIG=str(file))
    _assert_one_line(result, f"KUBECONFIG={file}", "set KUBECONFIG to a file that kubectl works with")


async def test_a_port_that_is_taken_is_one_line(site: Site) -> None:
    async with _operator(site) as first:
        await first.answers("/metrics", _LEADS)
        async with _operator(site, OUTBOX_PROBE_PORT=str(first.port)) as second:
            _assert_one_line(await second.ended(), f"port {first.port}", "choose another port")


@pytest.mark.parametrize(
    ("verb", "plural"),
    [("list", "outboxlisteners"), ("list", "deployments"), ("get", "leases"), ("create", "leases")],
)
async def test_a_right_that_is_lacking_is_one_line(
    api: Api, namespace: str, tmp_path: Path, verb: str, plural: str
) -> None:
    rights = [_without(rule, plural, verb) for rule in (*_RESOURCE_RULES, *_LEASE_RULES)]
    who = identity(api, namespace, tmp_path, {namespace: rights})
    result = await _ended(
        KUBECONFIG=str(who.kubeconfig), OUTBOX_NAMESPACES=namespace, OUTBOX_LEASE_NAMESPACE=namespace
    )
    _assert_one_line(result, f"may not {verb} {plural}", f"in namespace {namespace}; add that to its Role")


def _without(rule: Rule, plural: str, verb: str) -> Rule:
    if plural not in rule["resources"]:
        return rule
    return {**rule, "verbs": [each for each in rule["verbs"] if each != verb]}


# What it serves.


async def test_probes_and_metrics_answer_in_a_leader_and_in_one_that_stands_by(site: Site) -> None:
    async with _operator(site) as leader:
        await leader.answers("/metrics", _LEADS)
        await leader.answers("/livez", "200 ok")
        await leader.answers("/readyz", "200 ok")
        async with _operator(site) as other:
            await other.answers("/metrics", _STANDS_BY)
            await other.answers("/livez", "200 ok")
            await other.answers("/readyz", "200 ok")
            for metric in ("reconciles", "reconcile_seconds", "queue_depth", "broker_calls", "drift_repairs"):
                await other.answers("/metrics", f"# TYPE outbox_operator_{metric}")


# Who leads.


async def test_after_a_kill_the_other_one_takes_over(site: Site) -> None:
    relay, listener = site.relay(), site.listener()
    site.make_secrets()
    async with _operator(site) as first:
        await first.answers("/metrics", _LEADS)
        async with _operator(site) as second:
            await second.answers("/metrics", _STANDS_BY)
            site.api.create(relay)
            await site.until_condition(relay)
            first.process.kill()
            await first.ended()
            site.api.create(listener)
            await second.answers("/metrics", _LEADS)
            await site.until_condition(listener)


async def test_sigterm_gives_the_lease_back(site: Site) -> None:
    async with _operator(site) as first:
        await first.answers("/metrics", _LEADS)
        async with _operator(site) as second:
            await second.answers("/metrics", _STANDS_BY)
            first.process.terminate()
            result = await first.ended()
            assert (result.status, result.complaints) == (0, [])
            assert "lease given back" in result.errors
            # Long before the Lease would have run out.
            await second.answers("/metrics", _LEADS)
            assert _lease(site)["spec"]["leaseTransitions"] == 2
            second.process.send_signal(signal.SIGINT)
            assert (await second.ended()).status == 0
            assert _holder(site) == ""


async def test_a_leader_that_was_stopped_for_too_long_writes_no_more_and_ends(site: Site) -> None:
    relay, listener, later = site.relay(), site.listener(), site.listener("later")
    site.make_secrets()
    async with _operator(site) as first:
        await first.answers("/metrics", _LEADS)
        site.api.create(relay)
        site.api.create(listener)
        await site.until_condition(listener)
        async with _operator(site) as second:
            await second.answers("/metrics", _STANDS_BY)
            first.process.send_signal(signal.SIGSTOP)
            site.api.create(later)
            await second.answers("/metrics", _LEADS)
            await site.until_condition(later)
            holder, seen = _holder(site), _versions(site, relay, listener, later)
            first.process.send_signal(signal.SIGCONT)
            result = await first.ended()
            _assert_one_line(result, f"Lease {site.namespace}/outbox-operator is lost: {holder} holds it")
            assert (_holder(site), _versions(site, relay, listener, later)) == (holder, seen)
            await second.answers("/metrics", _LEADS)


async def test_a_leader_whose_lease_somebody_took_ends_so_that_it_is_started_again(site: Site) -> None:
    async with _operator(site) as only:
        await only.answers("/metrics", _LEADS)
        lease = path(LEASE, site.namespace, "outbox-operator")
        change = {"spec": {"holderIdentity": "somebody"}}
        site.api.request("PATCH", lease, change, "application/merge-patch+json")
        _assert_one_line(await only.ended(), "is lost: somebody holds it")
        assert _holder(site) == "somebody"


def _versions(site: Site, *manifests: Manifest) -> list[str]:
    return [site.get(each)["metadata"]["resourceVersion"] for each in manifests]


# Where it works.


async def test_a_cluster_without_our_kinds_is_refused_and_with_them_served_everywhere(
    services: Services, rabbitmq_url: str, postgres_url: str, tmp_path: Path
) -> None:
    """Of its own: an operator for all namespaces would work in those of other tests."""
    with control_plane(to_stderr) as plane:
        api = Api(plane)
        for name in ("outbox-system", "shop-one", "shop-two"):
            api.make_namespace(name)
        lease = {"outbox-system": _LEASE_RULES}
        who = identity(api, "outbox-system", tmp_path, lease, _RESOURCE_RULES)
        variables = {"KUBECONFIG": str(who.kubeconfig), "OUTBOX_LEASE_NAMESPACE": "outbox-system"}
        _assert_one_line(
            await _ended(**variables),
            "OutboxRelays are not known to this cluster",
            "CustomResourceDefinitions",
        )
        for definition in DEFINITIONS:
            api.define(definition)
        shops = [
            Site(api, name, who, services, rabbitmq_url, postgres_url) for name in ("shop-one", "shop-two")
        ]
        async with module_process("outbox_operator", variables=variables) as operator:
            await operator.answers("/metrics", _LEADS)
            for shop in shops:
                await shop.until(lambda: all(map(api.is_served, DEFINITIONS)), "our kinds")
                shop.make_secrets()
                api.create(shop.relay())
                api.create(shop.listener())
            for shop in shops:
                await shop.until_condition(shop.listener())
            operator.process.terminate()
            assert (await operator.ended()).status == 0


# What it makes.


async def test_its_bindings_are_marked_with_the_uid_of_its_lease(site: Site) -> None:
    site.make_secrets()
    site.api.create(site.relay())
    site.api.create(site.listener())
    async with _operator(site):
        await site.until_condition(site.listener())
    bindings = site.broker("GET", f"queues/{{vhost}}/{site.namespace}.mail/bindings")
    [installation] = [each["arguments"].get(INSTALLATION) for each in bindings if each["source"]]
    assert installation == _lease(site)["metadata"]["uid"]

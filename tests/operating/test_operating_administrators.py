"""An administrator of the broker in the operator's namespace: who may use it, and who never sees it."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

from outbox_operator.rbac import ADMINISTRATOR_RIGHTS, RESOURCE_RIGHTS
from tests.integration.broker_access import serving
from tests.operating.test_operating_users import can_enter
from tests.operator.accounts import ALL, broker_uri, tag_broker_user
from tests.operator.control_plane.api import Manifest, RefusedError
from tests.operator.control_plane.identity import identity
from tests.operator.counting import samples, several_passes
from tests.operator.pods import Pods, users_of
from tests.operator.site import Site

SECRET = "rabbitmq-admin"  # noqa: S105 - its name
PASSWORD = "adm1n-s3cret"  # noqa: S105 - of these tests
NEW_PASSWORD = "adm1n-an0ther"  # noqa: S105 - of these tests
WORKER: Manifest = {"handler": "shop:mail", "worker": {"image": "shop:1", "replicas": 1}}


@dataclass(frozen=True)
class Tenancy:
    """Two tenants of one operator and one broker, each with a virtual host and no credentials for it."""

    home: Site
    """The operator's namespace."""
    a: Site
    b: Site
    user: str
    """The administrator."""

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "namespaces": (self.a.namespace, self.b.namespace),
            "lease_namespace": self.home.namespace,
            "administrator_secrets": (SECRET,),
        }

    def secret(self, password: str = PASSWORD, **data: str) -> dict[str, str]:
        lines = [f"{each.namespace}: {each.vhost}" for each in (self.a, self.b)]
        return {
            "uri": broker_uri(self.home, self.user, password),
            "managementUrl": self.home.management_url,
            "namespaces": "\n".join(lines),
            **data,
        }


@pytest.fixture
def tenancy(site: Site, another_vhost: str, tmp_path: Path) -> Iterator[Tenancy]:
    names = [f"test-{uuid4().hex[:12]}" for _ in range(2)]
    for name in names:
        site.api.make_namespace(name)
    resources = [right.manifest() for right in RESOURCE_RIGHTS]
    # As the chart does it: nothing else in its own namespace may be read.
    home = [{**right.manifest(), "resourceNames": [SECRET]} for right in ADMINISTRATOR_RIGHTS]
    who = identity(site.api, names[0], tmp_path, dict.fromkeys(names, resources))
    _grant_by_name(site, who.user, home)
    a = replace(site, namespace=names[0], identity=who)
    b = replace(site, namespace=names[1], identity=who, rabbitmq_url=another_vhost)
    user = f"admin-{uuid4().hex[:12]}"
    tag_broker_user(site, user, PASSWORD, "administrator")
    for tenant in (a, b):
        tenant.broker("PUT", f"permissions/{{vhost}}/{user}", {"configure": ALL, "write": ALL, "read": ALL})
        tenant.make_secret("shop-db", uri=tenant.postgres_url)
    yield Tenancy(site, a, b, user)
    site.broker("DELETE", f"users/{user}")


def _grant_by_name(site: Site, user: str, rules: list[Manifest]) -> None:
    """Give rights in the operator's namespace; the authoriser learns of them soon after this returns."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{site.namespace}"
    name = {"name": "administrators"}
    site.api.request("POST", f"{path}/roles", {"metadata": name, "rules": rules})
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", **name}
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]
    site.api.request(
        "POST", f"{path}/rolebindings", {"metadata": name, "roleRef": reference, "subjects": subjects}
    )


def administered(tenant: Site, name: str = "shop", *, vhost: str | None = None, **spec: Any) -> Manifest:
    """A relay without credentials for its broker."""
    broker = {"administratorSecretRef": {"name": SECRET}, "vhost": vhost or tenant.vhost}
    return tenant.relay(name, **{"broker": broker, **spec})


def everything_in(tenant: Site) -> str:
    """All that the tenant can read, as one text."""
    kinds = (
        "/api/v1/{}/secrets",
        "/api/v1/{}/events",
        "/apis/apps/v1/{}/deployments",
        "/apis/outbox.dev/v1alpha1/{}/outboxrelays",
        "/apis/outbox.dev/v1alpha1/{}/outboxlisteners",
    )
    lists = [tenant.api.request("GET", kind.format(f"namespaces/{tenant.namespace}")) for kind in kinds]
    data = [b64decode(each).decode() for item in lists[0]["items"] for each in item.get("data", {}).values()]
    return json.dumps([lists, data])


def objects_in(vhost: Site) -> set[str]:
    return vhost.exchanges() | set(vhost.queues())


async def test_a_tenant_without_credentials_is_served_with_users_of_its_own(tenancy: Tenancy) -> None:
    tenant = tenancy.a
    relay, listener = administered(tenant, replicas=1), tenant.listener(**WORKER)
    tenancy.home.make_secret(SECRET, **tenancy.secret())
    for each in (relay, listener):
        tenant.api.create(each)
    async with tenant.operating(**tenancy.settings):
        for each in (relay, listener):
            pods = Pods(tenant, each)
            await pods.until_made()
            pods.roll_out()
            await tenant.until_condition(each)
            [user] = users_of(tenant, each)
            assert f"://{user}:" in pods.broker_uri
            assert urlsplit(pods.broker_uri).path == f"/{tenant.vhost}"
            assert await can_enter(pods.broker_uri)
    assert f"{tenant.namespace}.mail" in tenant.queues()
    assert PASSWORD not in everything_in(tenant)
    assert tenancy.user not in everything_in(tenant)


async def test_a_tenant_is_refused_for_the_virtual_host_of_another(tenancy: Tenancy) -> None:
    a, b = tenancy.a, tenancy.b
    relay, listener = administered(b, vhost=a.vhost, replicas=1), b.listener(**WORKER)
    tenancy.home.make_secret(SECRET, **tenancy.secret())
    for each in (relay, listener):
        b.api.create(each)
    async with b.operating(**tenancy.settings) as operator:
        said = await b.until_condition(relay, "CredentialsValid", "False", "AdministratorNotAllowed")
        assert f'namespace "{b.namespace}" may not use administrator "{SECRET}"' in said["message"]
        assert a.namespace not in said["message"]
        await b.until_condition(listener, "RelayReady", "False", "AdministratorNotAllowed")
        await b.until(lambda: operator.world.queue.is_idle, "an operator with nothing to do")
        assert not list(samples(operator.world.metrics.broker_calls)), "nothing is sent to the broker"
        assert objects_in(a) == objects_in(b) == set()
        assert b.broker_users() == set()
        # The same with what it was given, and back.
        b.edit(relay, broker={"vhost": b.vhost})
        await b.until_condition(relay, "TopologyReady")
        b.edit(relay, broker={"vhost": a.vhost})
        await b.until_condition(relay, "CredentialsValid", "False", "AdministratorNotAllowed")
        await b.until(lambda: operator.world.queue.is_idle, "an operator with nothing to do")
    assert objects_in(a) == set()
    assert PASSWORD not in everything_in(b)


async def test_a_virtual_host_of_another_in_the_status_is_not_looked_at(tenancy: Tenancy) -> None:
    """Whoever may write the status could else read and change there what bears its name."""
    a, b = tenancy.a, tenancy.b
    relay, listener = administered(b), b.listener()
    tenancy.home.make_secret(SECRET, **tenancy.secret())
    for each in (relay, listener):
        b.api.create(each)
    places = [{"managementUrl": b.management_url, "name": a.vhost}]
    async with b.operating(**tenancy.settings):
        await b.until_condition(listener)
        path = f"{b.path_of(listener)}/status"
        b.api.request(
            "PATCH", path, {"status": {"previousVirtualHosts": places}}, "application/merge-patch+json"
        )
        b.edit(listener, bindingKeys=["another"])
        said = await b.until_condition(listener, "PreviousVhostDrained", "False", "PreviousVhostUnknown")
        assert "its credentials are not known any more" in said["message"]


async def test_a_virtual_host_that_is_taken_back_is_not_looked_at_any_more(tenancy: Tenancy) -> None:
    a, b, home = tenancy.a, tenancy.b, tenancy.home
    both = "\n".join(f"{b.namespace}: {vhost}" for vhost in (a.vhost, b.vhost))
    home.make_secret(SECRET, **tenancy.secret(namespaces=both))
    relay, listener = administered(b, vhost=a.vhost), b.listener()
    for each in (relay, listener):
        b.api.create(each)
    async with b.operating(**tenancy.settings) as operator:

        def seen() -> set[str]:
            return {access.vhost for access in operator.world.vhosts._opened}

        await b.until_condition(listener)
        b.edit(relay, broker={"vhost": b.vhost})
        await b.until_condition(listener, "PreviousVhostDrained", "True", "QueuesLeftBehind")
        assert seen() == {a.vhost, b.vhost}
        home.change_secret(SECRET, namespaces=f"{b.namespace}: {b.vhost}")
        await b.until_condition(listener, "PreviousVhostDrained", "False", "PreviousVhostUnknown")
        await b.until(lambda: seen() == {b.vhost}, "the end of looks at what was taken back")
        home.change_secret(SECRET, namespaces=f"{a.namespace}: {a.vhost}")
        await b.until_condition(listener, "RelayReady", "False", "AdministratorNotAllowed")
        await b.until(lambda: seen() == set(), "the end of all looks")


async def test_the_password_is_sent_to_no_host_of_a_tenants_choice(tenancy: Tenancy) -> None:
    tenant, heard = tenancy.a, []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1000))
        writer.close()

    tenancy.home.make_secret(SECRET, **tenancy.secret())
    async with serving(listen) as url:
        relay = administered(tenant)
        with pytest.raises(RefusedError, match="managementUrl and caSecretRef must not be set with"):
            tenant.api.create(_with_broker(relay, managementUrl=url))
        with pytest.raises(RefusedError, match="either secretRef or administratorSecretRef"):
            tenant.api.create(_with_broker(relay, secretRef={"name": "shop-rabbitmq"}))
        tenant.api.create(relay)
        async with tenant.operating(**tenancy.settings):
            await tenant.until_condition(relay, "TopologyReady")
            with pytest.raises(RefusedError, match="managementUrl and caSecretRef must not be set with"):
                tenant.edit(relay, broker={"managementUrl": url})
    assert heard == []


def _with_broker(relay: Manifest, **more: Any) -> Manifest:
    return {**relay, "spec": {**relay["spec"], "broker": {**relay["spec"]["broker"], **more}}}


async def test_a_secret_that_is_not_listed_is_not_read(tenancy: Tenancy) -> None:
    tenant = tenancy.a
    relay = administered(tenant)
    relay["spec"]["broker"]["administratorSecretRef"] = {"name": "other"}
    tenancy.home.make_secret("other", **tenancy.secret())
    tenant.api.create(relay)
    async with tenant.operating(**tenancy.settings):
        await tenant.until_condition(relay, "CredentialsValid", "False", "AdministratorNotAllowed")


async def test_a_rotation_and_a_change_of_who_may_use_it_reach_the_relays(tenancy: Tenancy) -> None:
    a, b, home = tenancy.a, tenancy.b, tenancy.home
    relays = [(tenant, administered(tenant)) for tenant in (a, b)]
    for tenant, relay in relays:
        tenant.api.create(relay)
    async with a.operating(drift_seconds=3600, **tenancy.settings):
        for tenant, relay in relays:
            await tenant.until_condition(relay, "CredentialsValid", "False", "SecretMissing")
        home.make_secret(SECRET, **tenancy.secret(namespaces=""))
        for tenant, relay in relays:
            await tenant.until_condition(relay, "CredentialsValid", "False", "KeyMissing")
        home.change_secret(SECRET, **tenancy.secret())
        for tenant, relay in relays:
            await tenant.until_condition(relay, "TopologyReady")
        secrets = [Pods(tenant, relay).secret_name for tenant, relay in relays]

        home.change_secret(SECRET, **tenancy.secret(NEW_PASSWORD))
        for tenant, relay in relays:
            await tenant.until_condition(relay, "CredentialsValid", "False", "AuthenticationFailed")
        tag_broker_user(home, tenancy.user, NEW_PASSWORD, "administrator")
        home.change_secret(SECRET, note="corrected")
        home.change_secret(SECRET, **tenancy.secret(NEW_PASSWORD, namespaces=f"{b.namespace}: {b.vhost}"))
        await a.until_condition(relays[0][1], "CredentialsValid", "False", "AdministratorNotAllowed")
        await b.until_condition(relays[1][1], "CredentialsValid", "True", "Valid")
        assert [Pods(tenant, relay).secret_name for tenant, relay in relays] == secrets
    for tenant in (a, b):
        assert PASSWORD not in everything_in(tenant)
        assert NEW_PASSWORD not in everything_in(tenant)


async def test_a_user_without_the_tag_is_never_given_to_pods(tenancy: Tenancy) -> None:
    tenant = tenancy.a
    relay, listener = administered(tenant, replicas=1), tenant.listener(**WORKER)
    tag_broker_user(tenancy.home, tenancy.user, PASSWORD, "management")
    tenancy.home.make_secret(SECRET, **tenancy.secret())
    for each in (relay, listener):
        tenant.api.create(each)
    async with tenant.operating(**tenancy.settings) as operator:
        for each in (relay, listener):
            said = await tenant.until_condition(each, "CredentialsValid", "False", "AdministratorTagMissing")
            assert "give it the tag administrator" in said["message"]
            await tenant.until_condition(each, "TopologyReady")
        await several_passes(tenant, operator)
        for each in (relay, listener):
            assert tenant.find("Deployment", Pods(tenant, each).name) is None
        assert PASSWORD not in everything_in(tenant)
        tag_broker_user(tenancy.home, tenancy.user, PASSWORD, "administrator")
        for each in (relay, listener):
            await Pods(tenant, each).until_made()
            await tenant.until_condition(each, "CredentialsValid", "True", "Valid")
    assert PASSWORD not in everything_in(tenant)


async def test_a_pod_user_outlives_a_move_from_own_credentials(tenancy: Tenancy) -> None:
    """The way there: a relay that had an administrator's credentials of its own gives them up."""
    tenant = tenancy.a
    tenant.make_secret("shop-rabbitmq", uri=broker_uri(tenant, tenancy.user, PASSWORD))
    tenancy.home.make_secret(SECRET, **tenancy.secret())
    relay = tenant.relay(replicas=1)
    tenant.api.create(relay)
    pods = Pods(tenant, relay)
    async with tenant.operating(**tenancy.settings):
        await pods.until_made()
        pods.roll_out()
        await tenant.until_condition(relay)
        before = pods.secret_name
        broker = {"secretRef": None, "managementUrl": None, **administered(tenant)["spec"]["broker"]}
        tenant.edit(relay, broker=broker)
        tenant.delete({"kind": "Secret", "metadata": {"name": "shop-rabbitmq"}})
        await tenant.until_condition(relay)
        assert pods.secret_name == before
        assert "previousVirtualHosts" not in tenant.status(relay)

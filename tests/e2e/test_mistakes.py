"""What a newcomer gets wrong: kubectl says what it is and what to do, and doing that helps."""

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.installation import Installation
from tests.e2e.kubectl import Kubectl, Manifest, rows, until
from tests.e2e.shop import MANIFESTS, Shop, open_shop
from tests.images.catalogue import SHOP

_DATABASE = "shop:for-trying-only@postgres:5432/shop"
_BROKER = "shop:for-trying-only@rabbitmq:5672/"


@pytest.fixture(scope="module")
def shop(kubectl: Kubectl, installation: Installation) -> Iterator[Shop]:
    """A shop without listeners."""
    with open_shop(kubectl, "services.yaml", "secrets.yaml", "relay.yaml") as opened:
        yield opened


def relay(name: str, **spec: Any) -> Manifest:
    """The shop's relay under another name, with something else."""
    made: Manifest = yaml.safe_load((MANIFESTS / "relay.yaml").read_text())
    return {**made, "metadata": {"name": name}, "spec": {**made["spec"], "replicas": 1, **spec}}


def listener(name: str, image: str = SHOP.name, **spec: Any) -> Manifest:
    """A listener like the shop's, with something else."""
    return {
        "apiVersion": "outbox.dev/v1alpha1",
        "kind": "OutboxListener",
        "metadata": {"name": name},
        "spec": {
            "relayRef": {"name": "shop"},
            "bindingKeys": ["order.lost"],
            "handler": "shop.listeners:remind",
            "worker": {"image": image},
            **spec,
        },
    }


def secret(name: str, uri: str) -> Manifest:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"uri": uri}}


def by(name: str) -> Manifest:
    return {"secretRef": {"name": name}}


def apply(shop: Shop, *manifests: Manifest) -> None:
    shop("apply", "--filename=-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))


def told(shop: Shop, resource: str, reason: str, *words: str) -> str:
    """Wait until `kubectl get` shows the reason, and `kubectl describe` all of these words, in the conditions
    and in an event; the message."""
    until(f"{resource} is not ready for {reason}", lambda: shown(shop, resource) == ("False", reason))
    until(
        f"{resource} has an event with {words}", lambda: all(word in events(shop, resource) for word in words)
    )
    message = str(shop.condition(resource)["message"])
    assert [word for word in words if word not in message] == []
    described = shop("describe", resource)
    assert message in described
    assert "for-trying-only" not in described
    return message


def shown(shop: Shop, resource: str) -> tuple[str, str]:
    """READY and REASON."""
    [cells] = rows(shop("get", resource)).values()
    return cells["READY"], cells["REASON"]


def events(shop: Shop, resource: str) -> str:
    return shop("describe", resource).partition("\nEvents:")[2]


def mend(shop: Shop, resource: str, **spec: Any) -> None:
    shop("patch", resource, "--type=merge", f"--patch={json.dumps({'spec': spec})}")
    shop.wait_until_ready(resource)


@pytest.mark.parametrize(
    ("part", "uri", "address"),
    [
        ("database", "postgresql://USER:PASSWORD@HOST:5432/DATABASE", f"postgresql://{_DATABASE}"),
        ("broker", "amqp://USER:PASSWORD@HOST:5672/VHOST", f"amqp://{_BROKER}"),
    ],
    ids=["database", "broker"],
)
def test_a_missing_secret_is_made_by_the_command_that_is_shown(
    shop: Shop, kubectl: Kubectl, part: str, uri: str, address: str
) -> None:
    name = f"no-{part}"
    apply(shop, relay(name, **{part: by(name)}))
    said = told(
        shop,
        f"obr/{name}",
        "SecretMissing",
        f'Secret "{name}" does not exist in namespace "{shop.namespace}"',
    )
    found = re.search(r"create it with: kubectl (.*)$", said)
    assert found
    kubectl(*shlex.split(found[1].replace(uri, address)))
    shop.wait_until_ready(f"obr/{name}")


@pytest.mark.parametrize(
    ("part", "wrong", "right", "words"),
    [
        (
            "database",
            "postgresql://shop:wrong-one@postgres:5432/shop",
            f"postgresql://{_DATABASE}",
            ('password authentication failed for user "shop"', "check the user and the password"),
        ),
        (
            "broker",
            "amqp://shop:wrong-one@rabbitmq:5672/",
            f"amqp://{_BROKER}",
            ('user "shop" is refused', "the name or the password is wrong; correct the Secret"),
        ),
    ],
    ids=["database", "broker"],
)
def test_a_wrong_password_is_corrected_in_the_secret(
    shop: Shop, part: str, wrong: str, right: str, words: tuple[str, ...]
) -> None:
    name = f"wrong-{part}"
    apply(shop, secret(name, wrong), relay(name, **{part: by(name)}))
    assert "wrong-one" not in told(shop, f"obr/{name}", "AuthenticationFailed", *words)
    apply(shop, secret(name, right))
    shop.wait_until_ready(f"obr/{name}")


@pytest.mark.parametrize(
    ("part", "wrong", "words"),
    [
        (
            "database",
            "postgresql://shop:for-trying-only@postgrez:5432/shop",
            ("check the host", "There is no Service postgrez in namespace {namespace}"),
        ),
        (
            "broker",
            "amqp://shop:for-trying-only@rabbit:5672/",
            ("http://rabbit.{namespace}.svc:15672 cannot be reached", "correct the host in the Secret"),
        ),
    ],
    ids=["database", "broker"],
)
def test_a_host_that_is_not_there_is_named(shop: Shop, part: str, wrong: str, words: tuple[str, ...]) -> None:
    name = f"far-{part}"
    apply(shop, secret(name, wrong), relay(name, **{part: by(name)}))
    told(shop, f"obr/{name}", "Unreachable", *(word.format(namespace=shop.namespace) for word in words))


def test_a_relay_that_is_not_there_can_be_made(shop: Shop) -> None:
    apply(shop, listener("lonely", relayRef={"name": "shopp"}))
    missing = f'OutboxRelay "shopp" does not exist in namespace {shop.namespace}; create it, or'
    told(shop, "obl/lonely", "RelayMissing", missing)
    apply(shop, relay("shopp"))
    shop.wait_until_ready("obl/lonely")


def test_an_image_that_cannot_be_pulled_is_named(shop: Shop) -> None:
    apply(shop, listener("imageless", image="shop:9.9"))
    told(
        shop,
        "obl/imageless",
        "ImagePullBackOff",
        "cannot get its image 'shop:9.9'",
        "correct the image's name",
    )
    mend(shop, "obl/imageless", worker={"image": SHOP.name})


def test_an_image_that_is_no_workers_is_told_from_one_that_fails(shop: Shop) -> None:
    apply(shop, listener("foreign", image="postgres:17"))
    told(
        shop,
        "obl/foreign",
        "RunContainerError",
        '"python": executable file not found',
        "build it FROM the image",
    )
    mend(shop, "obl/foreign", worker={"image": SHOP.name})


def test_a_handler_that_the_module_has_not_is_shown_beside_those_that_it_has(shop: Shop) -> None:
    apply(shop, listener("handless", handler="shop.listeners:remember"))
    names = "shop.listeners:remember: there is no such name; the module's listeners are: book, charge_card"
    told(shop, "obl/handless", "CrashLoop", names, "see kubectl logs handless-worker-")
    mend(shop, "obl/handless", handler="shop.listeners:remind")


def test_a_module_that_the_image_has_not_is_named(shop: Shop) -> None:
    apply(shop, listener("moduleless", handler="shop.listners:remind"))
    told(shop, "obl/moduleless", "CrashLoop", "there is no module 'shop.listners'")
    mend(shop, "obl/moduleless", handler="shop.listeners:remind")


def test_a_variable_from_a_secret_that_is_not_there_is_named(shop: Shop) -> None:
    variable = {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "gone", "key": "uri"}}}
    apply(shop, listener("tokenless", worker={"image": SHOP.name, "template": {"env": [variable]}}))
    told(shop, "obl/tokenless", "CreateContainerConfigError", 'secret "gone" not found; make it, or')
    apply(shop, secret("gone", "something"))
    shop.wait_until_ready("obl/tokenless")

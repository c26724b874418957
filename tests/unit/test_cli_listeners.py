"""Listeners in the code as OutboxListener manifests, and where the two differ."""

import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from outbox import Listener
from outbox_cli.failures import CommandError
from outbox_cli.listeners.comparison import differences
from outbox_cli.listeners.export import Deployment, Known, known, manifest
from outbox_operator.resources import OutboxListener
from outbox_worker.loading import load

MODULE = """
from outbox import Constant, Exponential, Listener, listen

@listen("user.created", queue="shop.mail", retry_delays=(1, 90))
async def send_Mail_2(user): ...

@listen("order.#", retry_delays=Exponential(1, retries=3, jitter=0.2), ordered=True)
def audit(order): ...

@listen("order.placed", retry_delays=())
def once(order): ...

@listen("a.b")
def plain(body): ...

also = Listener("c.d", plain.callback)
"""
OTHER = """
from outbox import listen

@listen("user.deleted")
def audit(user): ...

@listen("x", queue="shop.mail")
def thief(body): ...

@listen("x", retry_delays=(1,) * 17)
def patient(body): ...

nameless = [listen("y")(lambda body: None)]
"""
DEPLOYMENT = Deployment("shop", "shop:1")


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A package of an application, importable for one test."""
    package = tmp_path / "exported_shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "listeners.py").write_text(MODULE)
    (package / "other.py").write_text(OTHER)
    monkeypatch.syspath_prepend(tmp_path)
    yield "exported_shop"
    for name in [name for name in sys.modules if name.startswith("exported_shop")]:
        del sys.modules[name]


def known_of(*targets: str) -> list[Known]:
    return known(load(targets), [target.partition(":")[0] for target in targets])


def specs(found: list[Known]) -> dict[str, Any]:
    manifests = [manifest(each, DEPLOYMENT) for each in found]
    return {each["metadata"]["name"]: each["spec"] for each in manifests}


def test_a_manifest_says_what_the_code_says_and_nothing_else(shop: str) -> None:
    rest = {"relayRef": {"name": "shop"}, "worker": {"image": "shop:1"}}
    assert specs(known_of(f"{shop}.listeners")) == {
        "send-mail-2": {
            **rest,
            "bindingKeys": ["user.created"],
            "queue": "shop.mail",
            "retryDelays": ["1s", "1m30s"],
            "handler": f"{shop}.listeners:send_Mail_2",
        },
        "audit": {
            **rest,
            "bindingKeys": ["order.#"],
            "retryDelays": ["1s", "2s", "4s"],
            "ordered": True,
            "handler": f"{shop}.listeners:audit",
        },
        "once": {
            **rest,
            "bindingKeys": ["order.placed"],
            "retryDelays": [],
            "handler": f"{shop}.listeners:once",
        },
        # Two listeners of one function share its queue.
        "plain": {**rest, "bindingKeys": ["a.b", "c.d"], "handler": f"{shop}.listeners:plain"},
    }


def test_a_namespace_is_written_where_it_is_given(shop: str) -> None:
    [each] = known_of(f"{shop}.listeners:once")
    made = manifest(each, Deployment("shop", "shop:1", "live"))
    assert made["metadata"] == {"name": "once", "namespace": "live"}


def test_a_name_that_two_modules_have_is_told_apart(shop: str) -> None:
    found = known_of(f"{shop}.listeners:audit", f"{shop}.other:audit")
    assert [each.name for each in found] == ["exported-shop-listeners-audit", "exported-shop-other-audit"]


@pytest.mark.parametrize(
    ("targets", "complaint"),
    [
        (
            ("listeners:send_Mail_2", "other:thief"),
            'exported_shop.listeners:send_Mail_2 and exported_shop.other:thief share queue "shop.mail", '
            "and an OutboxListener has one handler; give them queues of their own",
        ),
        (
            ("other:patient",),
            "exported_shop.other:patient: spec.retryDelays: retryDelays must be at most 16, "
            "as each is a queue on the broker; leave some out",
        ),
        (
            ("other:nameless",),
            "exported_shop.other:<lambda>: no module has the listener by a name; "
            "assign it to one in exported_shop.other",
        ),
    ],
)
def test_what_cannot_be_a_resource_is_told(shop: str, targets: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(CommandError) as refused:
        specs(known_of(*(f"{shop}.{target}" for target in targets)))
    assert str(refused.value) == complaint


def resource(each: Known, **spec: Any) -> OutboxListener:
    made = deepcopy(manifest(each, DEPLOYMENT))
    made["metadata"]["namespace"] = "shop"
    made["spec"] |= spec
    return OutboxListener.model_validate(made)


def test_what_was_exported_is_in_step(shop: str) -> None:
    found = known_of(f"{shop}.listeners")
    assert differences(found, [resource(each) for each in found]) == []


def test_what_the_code_does_not_know_is_left_alone(shop: str) -> None:
    [mail, plain] = known_of(f"{shop}.listeners:send_Mail_2", f"{shop}.listeners:plain")
    manifests = [
        resource(
            mail,
            limits={"maxLength": 5},
            worker={"image": "shop:2", "replicas": 7},
            deletionPolicy="Delete",
            relayRef={"name": "other"},
        ),
        resource(plain, queue="plain", retryDelays=["5m"]),
        OutboxListener.model_validate(
            {
                "metadata": {"name": "of-others"},
                "spec": {"relayRef": {"name": "shop"}, "bindingKeys": ["#"]},
            }
        ),
    ]
    assert differences([mail, plain], manifests) == []


def test_each_difference_is_told_with_both_values(shop: str) -> None:
    [mail, audit, once, plain] = known_of(f"{shop}.listeners")
    manifests = [
        resource(mail, bindingKeys=["user.deleted", "user.created"], queue="mails", retryDelays=["1s"]),
        resource(audit, ordered=False),
        resource(once, handler=f"{shop}.listeners:gone"),
        resource(audit, handler=f"{shop}.listeners:gone_too").model_copy(
            update={"metadata": resource(audit).metadata.model_copy(update={"name": "old"})}
        ),
    ]
    assert [each.line for each in differences([mail, audit, once, plain], manifests)] == [
        "OutboxListener send-mail-2: bindingKeys is [user.created] in the code "
        "and [user.created, user.deleted] in the manifest",
        "OutboxListener send-mail-2: queue is shop.mail in the code and mails in the manifest",
        "OutboxListener send-mail-2: retryDelays is [1s, 1m30s] in the code and [1s] in the manifest",
        "OutboxListener audit: ordered is true in the code and false in the manifest",
        f"OutboxListener once: handler is {shop}.listeners:once in the code "
        f"and {shop}.listeners:gone in the manifest",
        f"{shop}.listeners:plain: no manifest has this handler; add what `outbox listeners export` prints",
        f"OutboxListener old: the code has no listener {shop}.listeners:gone_too",
    ]


def test_a_queue_that_follows_from_name_and_namespace_is_the_same(shop: str) -> None:
    def mail(user: object) -> None: ...

    vars(sys.modules[__name__])["_mail"] = listener = Listener("user.created", mail, "shop.mail")
    try:
        [each] = known([listener], [__name__])
    finally:
        del vars(sys.modules[__name__])["_mail"]
    made = manifest(each, DEPLOYMENT)
    del made["spec"]["queue"]
    made["metadata"]["namespace"] = "shop"
    assert differences([each], [OutboxListener.model_validate(made)]) == []

from dataclasses import replace

import pytest

from outbox.topology import Binding
from outbox_core.url_hosts import HostPort
from outbox_operator.broker.access import BrokerAccess
from outbox_operator.broker.actions import MakeBinding, RemoveBinding
from outbox_operator.broker.live_snapshot import LiveSnapshot
from outbox_operator.broker.snapshot import ObservedBinding, ObservedUser, Snapshot
from outbox_operator.broker.topology_plan import topology_actions
from outbox_operator.children.autoscaling import trigger_authentication
from outbox_operator.children.workload import Workload
from outbox_operator.planning.claims import Hold, Obstacle
from outbox_operator.planning.listener_plan import ListenerView, needed_topology, plan
from outbox_operator.planning.marks import Domain
from outbox_operator.planning.plan import Plan
from outbox_operator.planning.pod_credentials import Chance
from outbox_operator.resources import OutboxListener, OutboxRelay

USER = "outbox.listener.shop.mail.11111111-0a1b2c3d"
KEY, LETTERS = Binding("outbox", "shop.mail", "a"), Binding("outbox.dlx", "shop.mail.dlq", "shop.mail")
RELAY = OutboxRelay.model_validate(
    {
        "metadata": {"name": "shop", "namespace": "shop"},
        "spec": {"database": {"secretRef": {"name": "d"}}, "broker": {"secretRef": {"name": "b"}}},
    }
)
MAIL = OutboxListener.model_validate(
    {
        "metadata": {"name": "mail", "namespace": "shop", "uid": "11111111-2222"},
        "spec": {
            "relayRef": {"name": "shop"},
            "bindingKeys": ["a"],
            "retryDelays": [],
            "worker": {"image": "shop:1"},
        },
    }
)


def made() -> Snapshot:
    """A broker with all that the listener needs."""
    live = LiveSnapshot(Snapshot({}, {}, {}, {USER: ObservedUser(USER, "", "", None)}))
    for action in topology_actions(needed_topology(MAIL, RELAY), "shop/mail", live.view, "here").actions:
        live.apply(action, "ours~")
    return live.view


def with_binding(there: Snapshot, binding: Binding, owner: str, installation: str = "here") -> Snapshot:
    other = ObservedBinding(binding, "theirs~", owner, installation)
    bound = (*there.bindings[binding.queue], other)
    return replace(there, bindings={**there.bindings, binding.queue: bound})


def planned(
    there: Snapshot,
    obstacle: Obstacle | None = None,
    *stale: ObservedBinding,
    other_hosts: tuple[HostPort, ...] = (),
) -> Plan:
    access = BrokerAccess("rabbit", 5672, False, "/", "u", "p", "http://rabbit:15672")
    view = ListenerView(
        listener=MAIL,
        relay=RELAY,
        access=replace(access, other_hosts=other_hosts),
        broker=there,
        obstacle=obstacle,
        credentials=None,
        chance=Chance("0a1b2c3d", "drawn"),
        has_keda=False,
        domain=Domain("here"),
        stale=stale,
    )
    return plan(view)


@pytest.mark.parametrize(
    ("hosts", "key"), [((), "broker-uri"), ((HostPort("rabbit-1", 5672),), "scaler-uri")], ids=["one", "two"]
)
def test_a_scaler_reads_a_url_with_one_host(hosts: tuple[HostPort, ...], key: str) -> None:
    found = planned(made(), other_hosts=hosts)
    assert isinstance(found.pods, Workload)
    assert found.credentials is not None
    [reference] = trigger_authentication(found.pods)["spec"]["secretTargetRef"]
    assert reference == {"parameter": "host", "name": found.credentials.name, "key": key}
    assert key in found.credentials.data


@pytest.mark.parametrize("hold", [Hold.CLAIMED, Hold.POSSIBLE, Hold.FOREIGN])
def test_nothing_is_touched_while_another_has_not_marked_the_queue(hold: Hold) -> None:
    found = planned(made(), Obstacle("shop.mail", "shop/other", hold))
    assert (found.actions, found.pods, found.loses_queue, found.retired_users) == ((), "AsTheyAre", False, ())
    assert found.findings[-1].reason == "QueueOwnedBy"
    assert "OutboxListener shop/other" in found.findings[-1].message


def test_a_listener_that_lost_its_queue_unbinds_it_and_stops_its_pods() -> None:
    there = with_binding(with_binding(made(), KEY, "shop/other"), LETTERS, "shop/other")
    found = planned(there, Obstacle("shop.mail", "shop/other", Hold.OWNED))
    assert found.actions == (RemoveBinding(KEY, "ours~"), RemoveBinding(LETTERS, "ours~"))
    assert (found.pods, found.loses_queue, found.retired_users) == ("None", True, (USER,))


def test_the_only_way_to_the_dead_letters_outlasts_a_loss() -> None:
    found = planned(with_binding(made(), KEY, "shop/other"), Obstacle("shop.mail", "shop/other", Hold.OWNED))
    assert found.actions == (RemoveBinding(KEY, "ours~"),)


def test_bindings_of_another_installation_stay_when_a_queue_is_lost() -> None:
    there = with_binding(made(), KEY, "shop/mail", "there")
    found = planned(there, Obstacle("shop.mail", "shop/other", Hold.OWNED))
    assert found.actions == (RemoveBinding(KEY, "ours~"),)


def test_what_listeners_left_behind_goes_after_the_own_bindings_are_made() -> None:
    left = ObservedBinding(Binding("outbox", "shop.mail", "old"), "left~", "shop/gone", "here")
    bare = replace(made(), bindings={"shop.mail": (left,)})
    found = planned(bare, None, left)
    bindings = [each for each in found.actions if isinstance(each, MakeBinding | RemoveBinding)]
    assert bindings == [
        MakeBinding(LETTERS, "shop/mail", "here"),
        MakeBinding(KEY, "shop/mail", "here"),
        RemoveBinding(left.binding, "left~"),
    ]


def test_a_queue_that_another_installation_has_bound_too_is_said_to_be_shared() -> None:
    found = planned(with_binding(made(), KEY, "shop/mail", "there"))
    topology = next(each for each in found.findings if each.reason == "Shared")
    assert 'queue "shop.mail" is also bound by another operator, of installation there' in topology.message
    assert not [each for each in found.actions if isinstance(each, RemoveBinding)]

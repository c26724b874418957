from typing import Any

import pytest

from outbox_operator.broker.access import VhostId
from outbox_operator.broker.identity import ClusterIdentity, VhostIdentity, parse_cluster

ONE = ClusterIdentity("rabbit@one")


def vhost(url: str, name: str = "shop", cluster: ClusterIdentity | None = None) -> VhostIdentity:
    return VhostIdentity(VhostId(url, name), cluster)


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        pytest.param(vhost("http://a"), vhost("http://a"), True, id="one address"),
        pytest.param(vhost("http://a"), vhost("http://a", "other"), False, id="another virtual host"),
        pytest.param(vhost("http://a"), vhost("http://b"), None, id="neither has answered"),
        pytest.param(
            vhost("http://a", cluster=ClusterIdentity("rabbit", "1")),
            vhost("http://b"),
            None,
            id="one has not",
        ),
        pytest.param(
            vhost("http://a", cluster=ClusterIdentity("rabbit", "1")),
            vhost("http://b", cluster=ClusterIdentity("rabbit", "1")),
            True,
            id="one cluster with two addresses",
        ),
        pytest.param(
            vhost("http://a", cluster=ClusterIdentity("rabbit", "1")),
            vhost("http://b", cluster=ClusterIdentity("rabbit", "2")),
            False,
            id="two clusters of one name",
        ),
        pytest.param(
            vhost("http://a", cluster=ClusterIdentity("rabbit", "1")),
            vhost("http://b", cluster=ClusterIdentity("rabbit")),
            True,
            id="one name, and only an administrator sees the id",
        ),
        pytest.param(
            vhost("http://a", cluster=ClusterIdentity("rabbit", "1")),
            vhost("http://b", cluster=ClusterIdentity("hare", "1")),
            False,
            id="a copy of a cluster with another name",
        ),
    ],
)
def test_virtual_hosts_are_compared_by_address_and_cluster(
    one: VhostIdentity, other: VhostIdentity, is_same: bool | None
) -> None:
    assert one.is_same(other) is is_same
    assert other.is_same(one) is is_same


@pytest.mark.parametrize(
    ("name", "parameters", "found"),
    [
        (
            {"name": "rabbit@one"},
            [{"name": "other", "value": {}}, {"name": "internal_cluster_id", "value": "id-1"}],
            ClusterIdentity("rabbit@one", "id-1"),
        ),
        ({"name": "rabbit@one"}, None, ONE),
        ({"name": "rabbit@one"}, {"error": "not_authorised"}, ONE),
        (
            {"name": "rabbit@one"},
            [{"name": "internal_cluster_id", "value": 7}],
            ClusterIdentity("rabbit@one"),
        ),
        ({"error": "not_authorised"}, [], None),
        (None, None, None),
    ],
)
def test_a_cluster_is_what_it_calls_itself(name: Any, parameters: Any, found: ClusterIdentity | None) -> None:
    assert parse_cluster(name, parameters) == found

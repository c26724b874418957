"""The addresses of a local cluster."""

from ipaddress import IPv4Network

import pytest

from tests.cluster.networks import BRIDGE_ADDRESS, PODS, SERVICES, free_link


def test_a_link_has_an_address_for_the_host_and_one_for_the_node() -> None:
    link = free_link([])
    assert link.host in link.network
    assert link.node in link.network
    assert link.host != link.node


def test_a_link_keeps_away_from_the_networks_that_the_host_has() -> None:
    free = IPv4Network("198.19.7.4/30")
    taken = IPv4Network("198.18.0.0/15").address_exclude(free)
    assert free_link(list(taken)).network == free


def test_a_host_with_routes_to_everywhere_is_told_so() -> None:
    with pytest.raises(OSError, match="no link to a node is free"):
        free_link([IPv4Network("0.0.0.0/0")])


def test_pods_and_services_do_not_meet() -> None:
    assert not PODS.overlaps(SERVICES)
    assert BRIDGE_ADDRESS in PODS

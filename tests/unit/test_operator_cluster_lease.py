"""What a Lease says, and what it becomes."""

from typing import Any

import pytest

from outbox_operator.cluster import lease
from outbox_operator.cluster.kinds import Manifest
from outbox_operator.cluster.leadership import Timing
from tests.operator.junk import ODD, paths, with_odd


def _lease(**spec: object) -> Manifest:
    metadata = {"namespace": "shop", "name": "operator", "resourceVersion": "7", "labels": {"a": "b"}}
    return {"metadata": metadata, "spec": spec}


def test_nobody_holds_what_is_not_there_or_was_given_back() -> None:
    assert lease.holder_of(None) == ""
    assert lease.holder_of({"metadata": {}}) == ""
    assert lease.holder_of(lease.released(_lease(holderIdentity="one"))) == ""


def test_a_lease_has_the_uid_that_the_api_server_gave_it() -> None:
    assert lease.uid_of({"metadata": {"uid": "11111111-2222"}}) == "11111111-2222"
    assert lease.uid_of(lease.created("shop", "operator")) == ""
    assert lease.uid_of(None) == ""


def test_the_holder_says_how_long_it_holds() -> None:
    assert lease.duration_of(_lease(leaseDurationSeconds=15), otherwise=10) == 15
    assert lease.duration_of(_lease(), otherwise=10) == 10


def test_a_lease_that_is_taken_keeps_its_metadata_and_counts_the_hands() -> None:
    taken = lease.taken(_lease(holderIdentity="one", leaseTransitions=4), "two", 10)
    assert taken["metadata"] == _lease()["metadata"]
    assert taken["spec"]["holderIdentity"] == "two"
    assert taken["spec"]["leaseTransitions"] == 5
    assert taken["spec"]["leaseDurationSeconds"] == 10
    assert taken["spec"]["acquireTime"] <= taken["spec"]["renewTime"]


def test_a_renewal_changes_its_time_alone() -> None:
    taken = lease.taken(lease.created("shop", "operator"), "one", 10)
    renewed = lease.renewed(taken)
    assert {**renewed["spec"], "renewTime": ""} == {**taken["spec"], "renewTime": ""}


@pytest.mark.parametrize("timing", [{"fence_seconds": 10.0}, {"renew_seconds": 6.0}, {"lease_seconds": 7.0}])
def test_timing_that_lets_two_lead_is_refused(timing: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="timing of the Lease"):
        Timing(**timing)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_odd_fields_of_a_lease_are_as_good_as_none(odd: Any) -> None:
    held = lease.taken(_lease(leaseTransitions=3), "me", 10)
    held["metadata"]["uid"] = "u"
    for path in paths(held):
        if path in (("metadata",), ("kind",), ("apiVersion",)):
            continue
        found = with_odd(held, path, odd)
        assert isinstance(lease.holder_of(found) + lease.version_of(found) + lease.uid_of(found), str)
        assert 0 < lease.duration_of(found, 7) < 1 << 31
        assert lease.taken(found, "she", 10)["spec"]["leaseTransitions"] in (1, 4, 5)
        assert lease.holder_of(lease.renewed(lease.taken(found, "she", 10))) == "she"
        assert lease.holder_of(lease.released(found)) == ""

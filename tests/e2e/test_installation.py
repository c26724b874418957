"""The operator as Helm installs it."""

from tests.e2e.installation import Installation
from tests.e2e.kubectl import until


def test_two_operators_are_ready_under_restricted_pod_security_and_one_leads(
    installation: Installation,
) -> None:
    pods = installation.pods()
    assert len(pods) == 2
    until("an operator leads", installation.leader)
    assert installation.leader() in {pod["metadata"]["name"] for pod in pods}


def test_helm_test_passes(installation: Installation) -> None:
    assert "Phase:          Succeeded" in installation.test()

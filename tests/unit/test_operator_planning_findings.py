from outbox_operator.broker.snapshot import BrokerProblem
from outbox_operator.planning.findings import false, topology_unmade, true
from outbox_operator.resources.condition import ConditionType


def test_a_topology_that_the_broker_refuses_is_not_said_to_be_there_as_well() -> None:
    entered = true(ConditionType.CREDENTIALS_VALID, "Valid")
    planned = (entered, true(ConditionType.TOPOLOGY_READY, "Present"))
    refused = false(ConditionType.TOPOLOGY_READY, "Forbidden", "no rights; give it some")
    found = topology_unmade(planned, BrokerProblem("Forbidden", "no rights; give it some"))
    assert found == (entered, refused)

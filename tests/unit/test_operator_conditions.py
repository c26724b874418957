from datetime import UTC, datetime, timedelta

import pytest

from outbox_operator.conditions import Finding, merge, ready
from outbox_operator.resources.condition import Condition, ConditionStatus, ConditionType
from tests.hostile import ALL

TRUE, FALSE, UNKNOWN = ConditionStatus.TRUE, ConditionStatus.FALSE, ConditionStatus.UNKNOWN
CREDENTIALS, DATABASE = ConditionType.CREDENTIALS_VALID, ConditionType.DATABASE_READY
TOPOLOGY, WORKLOAD = ConditionType.TOPOLOGY_READY, ConditionType.WORKLOAD_AVAILABLE
PAUSED, READY = ConditionType.PAUSED, ConditionType.READY

NOON = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
LATER = NOON + timedelta(minutes=5)

VALID = Finding(CREDENTIALS, TRUE, "Valid")
MISSING = Finding(CREDENTIALS, FALSE, "SecretMissing", "make the Secret shop-db")
REFUSED = Finding(CREDENTIALS, FALSE, "AuthenticationFailed", "correct the password in the Secret shop-db")
DECLARED = Finding(TOPOLOGY, TRUE, "Declared")
DIFFERS = Finding(TOPOLOGY, FALSE, "ArgumentsDiffer", "delete the queue mails")
UNSEEN = Finding(DATABASE, UNKNOWN, "Unreachable", "Postgres does not answer")
NOT_PAUSED = Finding(PAUSED, FALSE, "Running")
HELD = Finding(ConditionType.VACUUM_EFFECTIVE, FALSE, "HeldBySession", "end it")
IS_PAUSED = Finding(PAUSED, TRUE, "Paused", "set spec.paused to false")


@pytest.mark.parametrize(
    ("findings", "status", "reason", "message"),
    [
        ([VALID, DECLARED], TRUE, "Ready", ""),
        ([VALID, DECLARED, NOT_PAUSED], TRUE, "Ready", ""),
        ([VALID, DECLARED, HELD], TRUE, "Ready", ""),
        ([HELD, DIFFERS], FALSE, "ArgumentsDiffer", "delete the queue mails"),
        ([VALID, DIFFERS], FALSE, "ArgumentsDiffer", "delete the queue mails"),
        ([DIFFERS, MISSING], FALSE, "SecretMissing", "make the Secret shop-db"),
        ([UNSEEN, DIFFERS], FALSE, "ArgumentsDiffer", "delete the queue mails"),
        ([UNSEEN, VALID], UNKNOWN, "Unreachable", "Postgres does not answer"),
        ([IS_PAUSED, DIFFERS], UNKNOWN, "Paused", "set spec.paused to false"),
        ([], UNKNOWN, "Pending", "the operator has not looked at it yet"),
        ([NOT_PAUSED], UNKNOWN, "Pending", "the operator has not looked at it yet"),
    ],
)
def test_ready_is_the_first_thing_to_mend(
    findings: list[Finding], status: ConditionStatus, reason: str, message: str
) -> None:
    assert ready(findings) == Finding(READY, status, reason, message)


def _times(conditions: tuple[Condition, ...]) -> dict[str, datetime]:
    return {condition.type: condition.last_transition_time for condition in conditions}


def test_new_conditions_have_the_time_in_whole_seconds_and_the_generation() -> None:
    [condition, summary] = merge((), [MISSING], generation=3, now=NOON)
    noon = NOON.replace(microsecond=0)
    assert condition == Condition(
        type="CredentialsValid",
        status=FALSE,
        reason="SecretMissing",
        message="make the Secret shop-db",
        observed_generation=3,
        last_transition_time=noon,
    )
    assert (summary.type, summary.status, summary.reason) == ("Ready", FALSE, "SecretMissing")


def test_what_is_found_again_does_not_change_at_all() -> None:
    before = merge((), [VALID, DIFFERS], generation=1, now=NOON)
    assert merge(before, [VALID, DIFFERS], generation=1, now=LATER) == before


def test_another_reason_or_generation_does_not_move_the_time() -> None:
    before = merge((), [MISSING], generation=1, now=NOON)
    after = merge(before, [REFUSED], generation=2, now=LATER)
    assert _times(after) == _times(before)
    assert [(c.reason, c.observed_generation) for c in after] == [("AuthenticationFailed", 2)] * 2


def test_another_status_moves_the_time_of_that_condition_and_of_the_sum() -> None:
    before = merge((), [MISSING, DECLARED], generation=1, now=NOON)
    after = merge(before, [VALID, DECLARED], generation=1, now=LATER)
    noon, later = NOON.replace(microsecond=0), LATER.replace(microsecond=0)
    assert _times(after) == {"CredentialsValid": later, "TopologyReady": noon, "Ready": later}


def test_conditions_are_in_one_order_whatever_the_findings_are_in() -> None:
    found = merge((), [DIFFERS, NOT_PAUSED, VALID], generation=1, now=NOON)
    assert [c.type for c in found] == ["Paused", "CredentialsValid", "TopologyReady", "Ready"]
    assert merge((), [VALID, DIFFERS, NOT_PAUSED], generation=1, now=NOON) == found


def test_a_condition_that_does_not_apply_any_more_goes() -> None:
    gone = Finding(WORKLOAD, TRUE, "Available")
    before = merge((), [VALID, gone], generation=1, now=NOON)
    after = merge(before, [VALID], generation=2, now=LATER)
    assert [c.type for c in after] == ["CredentialsValid", "Ready"]


def test_a_condition_of_somebody_else_stays() -> None:
    foreign = Condition(type="example.org/Audited", status=TRUE, reason="Done", last_transition_time=NOON)
    assert merge([foreign], [VALID], generation=1, now=LATER)[-1] is foreign


def test_the_sum_is_never_taken_from_the_findings() -> None:
    claimed = Finding(READY, TRUE, "Ready")
    found = merge((), [claimed, MISSING], generation=1, now=NOON)
    assert [(c.type, c.status) for c in found] == [("CredentialsValid", FALSE), ("Ready", FALSE)]


def test_a_condition_survives_being_written_and_read() -> None:
    written = [c.manifest() for c in merge((), [MISSING], generation=3, now=NOON)]
    assert written[0]["lastTransitionTime"] == "2026-01-01T12:00:00Z"
    read = [Condition.model_validate(each) for each in written]
    assert tuple(read) == merge((), [MISSING], generation=3, now=NOON)


def test_a_long_message_is_cut_before_the_api_server_refuses_it() -> None:
    finding = Finding(TOPOLOGY, FALSE, "Odd", "\N{LANGUAGE TAG}" * 100_000)
    conditions = merge([], [finding], generation=1, now=NOON)
    assert {len(condition.message) for condition in conditions} == {4096}


def test_what_a_server_or_a_pod_said_is_escaped_in_every_condition() -> None:
    conditions = merge([], [Finding(TOPOLOGY, FALSE, "Unreachable", ALL)], generation=1, now=NOON)
    assert [condition.type for condition in conditions] == [TOPOLOGY, READY]
    assert all(condition.message.isprintable() for condition in conditions)
    assert (
        merge(conditions, [Finding(TOPOLOGY, FALSE, "Unreachable", ALL)], generation=1, now=LATER)
        == conditions
    )

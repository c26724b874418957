from typing import Any

import pytest

from outbox_operator.children.pod_trouble import finding, pod_trouble
from outbox_operator.resources.condition import ConditionStatus, ConditionType

_LOGS = "see kubectl logs shop-relay-x --container relay --previous --namespace shop"


def _pod(*containers: dict[str, Any], name: str = "shop-relay-x", **fields: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"}
    status = {"phase": "Running", "containerStatuses": list(containers), **fields.pop("status", {})}
    return {"metadata": {**metadata, **fields}, "status": status}


def _container(**fields: Any) -> dict[str, Any]:
    return {"name": "relay", "image": "relay:1", "ready": False, "restartCount": 0, **fields}


def _waiting(reason: str, message: str = "", **fields: Any) -> dict[str, Any]:
    return _container(state={"waiting": {"reason": reason, "message": message}}, **fields)


def _ended(code: int, message: str = "", reason: str = "Error") -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


_UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient cpu.",
}

_NO_PYTHON = 'exec: "python": executable file not found in $PATH: unknown'

_TROUBLES = [
    (
        "an image that cannot be pulled",
        _pod(_waiting("ErrImagePull", "relay:1: not found")),
        "ImagePullBackOff",
        "pod shop-relay-x container relay cannot get its image 'relay:1': relay:1: not found; "
        "correct the image's name, or add a Secret for its registry to the template's imagePullSecrets",
    ),
    ("and its back-off", _pod(_waiting("ImagePullBackOff", "Back-off")), "ImagePullBackOff", "Back-off"),
    ("a bad name", _pod(_waiting("InvalidImageName", "bad")), "InvalidImageName", "correct the image's name"),
    (
        "a crash loop with its last line",
        _pod(_waiting("CrashLoopBackOff", lastState=_ended(1, "Traceback\n  …\nValueError: no table\n\n"))),
        "CrashLoop",
        f"pod shop-relay-x container relay ended with exit code 1: ValueError: no table; {_LOGS}",
    ),
    ("just ended", _pod(_container(state=_ended(3, "oh"))), "CrashLoop", "ended with exit code 3: oh;"),
    (
        "trying again",
        _pod(_container(state={"running": {}}, restartCount=2, lastState=_ended(1, "oh"))),
        "CrashLoop",
        "ended with exit code 1: oh;",
    ),
    (
        "a program that thinks it is done",
        _pod(_waiting("CrashLoopBackOff", lastState=_ended(0, reason="Completed"))),
        "CrashLoop",
        f"ended with exit code 0; {_LOGS}",
    ),
    (
        "a crash loop that nobody knows more of",
        _pod(_waiting("CrashLoopBackOff")),
        "CrashLoop",
        "keeps ending;",
    ),
    (
        "no memory",
        _pod(_waiting("CrashLoopBackOff", lastState=_ended(137, reason="OOMKilled"))),
        "CrashLoop",
        "was killed for its use of memory: more than its limit; raise resources.limits.memory",
    ),
    (
        "a missing Secret",
        _pod(_waiting("CreateContainerConfigError", 'secret "s" not found')),
        "CreateContainerConfigError",
        'cannot be started: secret "s" not found; make it, or correct its name in the template',
    ),
    (
        "an image of root's",
        _pod(_waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root")),
        "CreateContainerConfigError",
        "give the image a numeric USER other than 0, such as USER 1000",
    ),
    (
        "no such program",
        _pod(_waiting("RunContainerError", 'exec: "python": not here')),
        "RunContainerError",
        "correct the image or the template",
    ),
    (
        "no such program, once it was tried",
        _pod(_waiting("CrashLoopBackOff", lastState=_ended(128, _NO_PYTHON, "StartError"))),
        "RunContainerError",
        f"cannot be started: {_NO_PYTHON}; correct the image's name, or build it FROM the image of",
    ),
    (
        "a line of a log, without its time",
        _pod(
            _container(state=_ended(1, "2026-11-16T14:11:58.264Z ERROR outbox.worker shop:x: there is no x"))
        ),
        "CrashLoop",
        f"ended with exit code 1: shop:x: there is no x; {_LOGS}",
    ),
    (
        "no room",
        _pod(status={"phase": "Pending", "conditions": [_UNSCHEDULABLE]}),
        "Unschedulable",
        "pod shop-relay-x fits on no node: 0/3 nodes are available: 3 Insufficient cpu.; add nodes",
    ),
    (
        "an injected container",
        _pod(
            _container(state={"running": {}}, ready=True),
            status={"initContainerStatuses": [{**_waiting("ErrImagePull"), "name": "mesh"}]},
        ),
        "ImagePullBackOff",
        "container mesh",
    ),
]

_NO_TROUBLES = [
    ("well", _pod(_container(state={"running": {}}, ready=True))),
    ("starting", _pod(_waiting("ContainerCreating"))),
    ("not ready yet", _pod(_container(state={"running": {}}))),
    ("well again", _pod(_container(state={"running": {}}, ready=True, restartCount=1, lastState=_ended(1)))),
    ("being deleted", _pod(_waiting("CrashLoopBackOff"), deletionTimestamp="2026-01-01T00:00:00Z")),
    ("evicted", _pod(_container(state=_ended(137)), status={"phase": "Failed", "reason": "Evicted"})),
    (
        "prepared",
        _pod(
            status={"initContainerStatuses": [{"name": "init", "ready": True, "state": _ended(0)}]},
        ),
    ),
    ("new", {"metadata": {"name": "shop-relay-x", "namespace": "shop"}}),
]


@pytest.mark.parametrize(
    ("pod", "reason", "message"), [case[1:] for case in _TROUBLES], ids=[case[0] for case in _TROUBLES]
)
def test_a_pod_in_trouble_says_what_to_do(pod: dict[str, Any], reason: str, message: str) -> None:
    trouble = pod_trouble([pod])
    assert trouble is not None
    found = finding(trouble)
    assert (found.type, found.status) == (ConditionType.WORKLOAD_AVAILABLE, ConditionStatus.FALSE)
    assert found.reason == reason
    assert message in found.message


@pytest.mark.parametrize("pod", [case[1] for case in _NO_TROUBLES], ids=[case[0] for case in _NO_TROUBLES])
def test_a_pod_that_may_yet_be_well_is_in_no_trouble(pod: dict[str, Any]) -> None:
    assert pod_trouble([pod]) is None


def test_the_newest_pod_has_the_word() -> None:
    older = _pod(_waiting("CrashLoopBackOff"), name="older", creationTimestamp="2026-01-01T00:00:00Z")
    newer = _pod(_waiting("ErrImagePull"), name="newer", creationTimestamp="2026-01-02T00:00:00Z")
    trouble = pod_trouble([older, newer])
    assert trouble is not None
    assert (trouble.pod, trouble.container, trouble.namespace) == ("newer", "relay", "shop")


def test_the_log_is_asked_for_where_the_status_has_not_its_end() -> None:
    silent = pod_trouble([_pod(_waiting("CrashLoopBackOff", lastState=_ended(1)))])
    telling = pod_trouble([_pod(_waiting("CrashLoopBackOff", lastState=_ended(1, "oh")))])
    image = pod_trouble([_pod(_waiting("ErrImagePull"))])
    assert silent is not None
    assert telling is not None
    assert image is not None
    assert (silent.needs_log, telling.needs_log, image.needs_log) == (True, False, False)
    assert "exit code 1: from the log;" in finding(silent, "from the log").message


def test_no_password_is_told() -> None:
    line = "OSError: cannot reach amqp://shop:sesame@rabbitmq/ with password=sesame"
    trouble = pod_trouble([_pod(_waiting("CrashLoopBackOff", lastState=_ended(1, line)))])
    silent = pod_trouble([_pod(_waiting("CrashLoopBackOff", lastState=_ended(1)))])
    assert trouble is not None
    assert silent is not None
    for said in (repr(trouble), finding(trouble).message, finding(silent, line).message):
        assert "sesame" not in said
    assert "amqp://shop:***@rabbitmq" in finding(trouble).message


def test_a_long_line_is_shortened() -> None:
    trouble = pod_trouble([_pod(_waiting("CrashLoopBackOff", lastState=_ended(1, "x" * 5000)))])
    assert trouble is not None
    assert len(finding(trouble).message) < 700

"""What is wrong with pods that do not come up, in a sentence that says what to do."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from outbox_core.masking import mask
from outbox_operator.children.manifest import Manifest
from outbox_operator.conditions import Finding
from outbox_operator.resources.condition import ConditionStatus, ConditionType

_LONGEST_WORDS = 400

_IMAGE_PROBLEMS = {
    # A pod is in one or the other by turns.
    "ErrImagePull": "ImagePullBackOff",
    "ImagePullBackOff": "ImagePullBackOff",
    "ErrImageNeverPull": "ImagePullBackOff",
    "RegistryUnavailable": "ImagePullBackOff",
    "InvalidImageName": "InvalidImageName",
    "ImageInspectError": "ImageInspectError",
    "SignatureValidationFailed": "SignatureValidationFailed",
}
_START_PROBLEMS = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
_NEVER_STARTED = ("StartError", "ContainerCannotRun")
"""How a container ended whose program could not be run: it is in RunContainerError by turns."""
_LOG_LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z (?:ERROR|CRITICAL) \S+ (?=\S)")
"""What is before the words of a line that one of our programs logged; the time would change the finding each
time the container is tried again."""


@dataclass(frozen=True, slots=True)
class PodTrouble:
    """Why a pod does not do its work."""

    reason: str
    """The reason of the finding."""
    pod: str
    """The pod's name."""
    namespace: str
    """Its namespace."""
    container: str | None
    """The container that is in trouble; None where it is the pod as a whole."""
    what: str
    """What is wrong, as a clause about it."""
    words: str
    """What Kubernetes or the container's own last line says, without passwords; empty where nothing is
    known."""
    cure: str
    """What to do."""

    @property
    def needs_log(self) -> bool:
        """Whether the container's log would say more: the status did not bring the end of it."""
        return self.reason == "CrashLoop" and not self.words


def finding(trouble: PodTrouble, last_line: str | None = None) -> Finding:
    """The trouble as a finding; `last_line` is the end of the log, where the status did not bring it."""
    words = _short(trouble.words or last_line or "")
    container = f" container {trouble.container}" if trouble.container else ""
    said = f": {words}" if words else ""
    return Finding(
        ConditionType.WORKLOAD_AVAILABLE,
        ConditionStatus.FALSE,
        trouble.reason,
        f"pod {trouble.pod}{container} {trouble.what}{said}; {trouble.cure}",
    )


def pod_trouble(pods: Iterable[Manifest]) -> PodTrouble | None:
    """The trouble of the newest pod that is in any; those that are about to go do not count."""
    present = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp") and not _is_over(pod)]
    newest_first = sorted(present, key=lambda pod: pod["metadata"].get("creationTimestamp", ""), reverse=True)
    return next((trouble for pod in newest_first for trouble in _troubles(pod)), None)


def _is_over(pod: Manifest) -> bool:
    """Whether it was evicted or has ended: its controller has made another."""
    return pod.get("status", {}).get("phase") in ("Failed", "Succeeded")


def _troubles(pod: Manifest) -> Iterator[PodTrouble]:
    status = pod.get("status", {})
    for condition in status.get("conditions", ()):
        if condition["type"] == "PodScheduled" and condition.get("reason") == "Unschedulable":
            cure = "add nodes or free some, or change the requests, nodeSelector, affinity or tolerations"
            words = condition.get("message", "")
            yield _trouble(pod, None, "Unschedulable", what="fits on no node", words=words, cure=cure)
    for container in (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())):
        if trouble := _of_container(pod, container):
            yield trouble


def _of_container(pod: Manifest, container: Manifest) -> PodTrouble | None:
    state, name = container.get("state", {}), container["name"]
    waiting = state.get("waiting", {})
    reason, words = waiting.get("reason", ""), waiting.get("message", "")
    if reason in _IMAGE_PROBLEMS:
        what = f"cannot get its image {container.get('image', '')!r}"
        cure = "correct the image's name, or add a Secret for its registry to the template's imagePullSecrets"
        return _trouble(pod, name, _IMAGE_PROBLEMS[reason], what=what, words=words, cure=cure)
    if reason in _START_PROBLEMS:
        return _trouble(pod, name, reason, what="cannot be started", words=words, cure=_start_cure(words))
    ended = _ended(container)
    if ended is not None:
        return _crash(pod, name, ended)
    return None


def _ended(container: Manifest) -> Manifest | None:
    """How a container that does not stay up last ended; one that was restarted and is ready stays up."""
    state = container.get("state", {})
    if terminated := state.get("terminated"):
        # An init container is done with 0.
        return terminated if terminated.get("exitCode") or not container.get("ready") else None
    is_waiting_again = state.get("waiting", {}).get("reason") == "CrashLoopBackOff"
    is_trying_again = "running" in state and not container.get("ready") and container.get("restartCount", 0)
    if not is_waiting_again and not is_trying_again:
        return None
    last: Manifest = container.get("lastState", {}).get("terminated") or {}
    return last if is_waiting_again or last.get("exitCode") else None


def _crash(pod: Manifest, container: str, ended: Manifest) -> PodTrouble:
    metadata = pod["metadata"]
    if ended.get("reason") == "OOMKilled":
        what, words = "was killed for its use of memory", "more than its limit"
        cure = "raise resources.limits.memory of the template"
        return _trouble(pod, container, "CrashLoop", what=what, words=words, cure=cure)
    if ended.get("reason") in _NEVER_STARTED:
        words = ended.get("message", "")
        what, cure = "cannot be started", _start_cure(words)
        return _trouble(pod, container, "RunContainerError", what=what, words=words, cure=cure)
    lines = [line.strip() for line in ended.get("message", "").splitlines() if line.strip()]
    code = ended.get("exitCode")
    what = "keeps ending" if code is None else f"ended with exit code {code}"
    cure = (
        f"see kubectl logs {metadata['name']} --container {container} --previous "
        f"--namespace {metadata['namespace']}"
    )
    words = _LOG_LINE.sub("", lines[-1], count=1) if lines else ""
    return _trouble(pod, container, "CrashLoop", what=what, words=words, cure=cure)


def _start_cure(words: str) -> str:
    if "non-numeric user" in words or "runAsNonRoot" in words or "run as root" in words:
        return "give the image a numeric USER other than 0, such as USER 1000"
    if "executable file not found" in words or "no such file or directory" in words:
        return "correct the image's name, or build it FROM the image of the relay or worker"
    if "not found" in words or "find key" in words:
        return "make it, or correct its name in the template"
    return "correct the image or the template"


def _trouble(
    pod: Manifest, container: str | None, reason: str, *, what: str, words: str, cure: str
) -> PodTrouble:
    metadata = pod["metadata"]
    return PodTrouble(reason, metadata["name"], metadata["namespace"], container, what, _short(words), cure)


def _short(text: str) -> str:
    """One line, without passwords, and not too long."""
    line = mask(" ".join(text.split()))
    return line if len(line) <= _LONGEST_WORDS else f"{line[: _LONGEST_WORDS - 1]}…"

"""The node that pods run on, for what cannot be done from inside a pod: no process can kill the first of its
own pod without being heard."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from tests.e2e.kubectl import Kubectl, Manifest, until
from tests.e2e.namespaces import fresh_namespace
from tests.images.catalogue import SHOP

_POD = "node"
_KILL = """
import contextlib, os, pathlib, signal, sys
for process in pathlib.Path("/proc").glob("[0-9]*"):
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        group = (process / "cgroup").read_text()
        for container in sys.argv[1:]:
            if container in group:
                os.kill(int(process.name), signal.SIGKILL)
                print(container)
"""
_KILLED = 128 + 9


@dataclass(frozen=True)
class Node:
    """A pod that sees all processes of its node."""

    kubectl: Kubectl
    namespace: str

    def kill(self, pods: Iterable[Manifest]) -> None:
        """kill -9 whatever runs in these pods, at once, and wait until all of it has been started again."""
        victims = list(pods)
        containers = [_container(pod)["containerID"].partition("://")[2] for pod in victims]
        kill = ("python", "-c", _KILL, *containers)
        killed = self.kubectl("exec", f"--namespace={self.namespace}", _POD, "--", *kill)
        assert set(killed.split()) == set(containers), "whatever runs in these pods is to be killed"
        for pod in victims:
            name = pod["metadata"]["name"]
            until(f"pod {name} was killed and is ready again", partial(self._is_back, pod))

    def _is_back(self, before: Manifest) -> bool:
        metadata = before["metadata"]
        pod = self.kubectl.get(f"--namespace={metadata['namespace']}", "pod", metadata["name"])
        then, now = _container(before), _container(pod)
        # Of an end, it may be forgotten by the kubelet how it was.
        ended = now["lastState"].get("terminated", {"exitCode": _KILLED})
        if now["restartCount"] == then["restartCount"] or not now["ready"]:
            return False
        assert ended["exitCode"] == _KILLED, f"{metadata['name']} ended by itself: {ended}"
        return True


@contextmanager
def node(kubectl: Kubectl) -> Iterator[Node]:
    """A pod on the node, in a namespace of its own where that is allowed."""
    with fresh_namespace(kubectl, "node", restricted=False) as namespace:
        kubectl.apply(_manifest(namespace))
        kubectl("wait", f"--namespace={namespace}", "--for=condition=Ready", "--timeout=60s", f"pod/{_POD}")
        yield Node(kubectl, namespace)


def _manifest(namespace: str) -> Manifest:
    container = {
        "name": _POD,
        "image": SHOP.name,
        "command": ["python", "-c", "import signal; signal.pause()"],
        "securityContext": {"runAsUser": 0, "runAsNonRoot": False},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": _POD},
        "spec": {"hostPID": True, "containers": [container], "terminationGracePeriodSeconds": 1},
    }


def _container(pod: Manifest) -> Manifest:
    [status] = pod["status"]["containerStatuses"]
    found: Manifest = status
    return found

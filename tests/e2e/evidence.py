"""What a person needs to see of a failed test: pods, logs, events and resources, in one folder.

The contents of Secrets are masked wherever they occur.
"""

import base64
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tests.e2e.kubectl import Kubectl, Manifest
from tests.e2e.namespaces import made_namespaces
from tests.images.catalogue import REPOSITORY

FOLDER = REPOSITORY / "build" / "e2e-failures"
_SHORTEST_SECRET = 6
_MASK = "<masked>"
"""Stands for itself in YAML too."""
# Apart from each other: where a cluster does not know one of them, kubectl shows none.
_SEEN = ("all", "obr,obl", "pvc,configmap,lease,networkpolicy,poddisruptionbudget")


def folder_of(test: str) -> Path:
    """Where the evidence of a test is."""
    return FOLDER / re.sub(r"[^\w.\-]+", "-", test).strip("-")


def collect_for(kubectl: Kubectl, test: str) -> str:
    """Collect for a test that failed; what to tell whoever reads of it, for a cluster may be what failed."""
    folder = folder_of(test)
    try:
        collect(kubectl, made_namespaces(kubectl), folder)
    except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
        return f"the cluster could not be looked at: {error}"
    return f"logs, events and resources: {folder}"


def collect(kubectl: Kubectl, namespaces: Iterable[str], folder: Path) -> Path:
    """Write down all that there is in these namespaces; the folder."""
    for namespace in namespaces:
        secrets = sorted(_secret_texts(kubectl, namespace), key=len, reverse=True)
        for name, text in _texts(kubectl, namespace):
            file = folder / namespace / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(_masked(text, secrets))
    return folder


def _texts(kubectl: Kubectl, namespace: str) -> Iterator[tuple[str, str]]:
    here = f"--namespace={namespace}"
    yield "overview.txt", "\n".join(_said(kubectl, "get", here, kinds, "--output=wide") for kinds in _SEEN)
    yield "events.txt", _said(kubectl, "events", here)
    yield (
        "resources.yaml",
        "---\n".join(_said(kubectl, "get", here, kinds, "--output=yaml") for kinds in _SEEN),
    )
    yield "describe.txt", "\n".join(_said(kubectl, "describe", here, kinds) for kinds in _SEEN)
    for pod in kubectl.get("pods", here)["items"]:
        name, containers = pod["metadata"]["name"], _containers(pod)
        for container in containers:
            which = (here, name, f"--container={container}", "--timestamps")
            file = f"logs/{name}" if len(containers) == 1 else f"logs/{name}.{container}"
            yield f"{file}.txt", _said(kubectl, "logs", *which)
            if _was_restarted(pod, container):
                yield f"{file}.previous.txt", _said(kubectl, "logs", *which, "--previous")


def _said(kubectl: Kubectl, *arguments: str) -> str:
    """What it prints, also where it fails: that is evidence too."""
    done = kubectl.attempt(*arguments)
    return done.stdout + done.stderr


def _containers(pod: Manifest) -> list[str]:
    spec = pod["spec"]
    return [container["name"] for container in (*spec.get("initContainers", ()), *spec["containers"])]


def _was_restarted(pod: Manifest, container: str) -> bool:
    statuses = pod["status"].get("containerStatuses", ())
    return any(status["name"] == container and status["restartCount"] for status in statuses)


def _secret_texts(kubectl: Kubectl, namespace: str) -> Iterator[str]:
    for secret in kubectl.get("secrets", f"--namespace={namespace}")["items"]:
        for value in secret.get("data", {}).values():
            text = base64.b64decode(value).decode(errors="replace").strip()
            yield from _long_enough((text, value, *_passwords(text)))


def _passwords(text: str) -> tuple[str, ...]:
    """The password of a URL, as it is there and as it is meant."""
    try:
        found = urlsplit(text).password
    except ValueError:
        return ()
    return (found, unquote(found)) if found else ()


def _long_enough(texts: Iterable[str]) -> Iterator[str]:
    """Shorter ones, such as a port, say nothing and occur everywhere."""
    return (text for text in texts if len(text) >= _SHORTEST_SECRET)


def _masked(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, _MASK)
    return text

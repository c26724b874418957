"""Namespaces of tests: marked as such, so that what went wrong in them can be found."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.kubectl import Kubectl

_MARK = "outbox.dev/made-by=end-to-end-tests"
_RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


def new_name(prefix: str) -> str:
    """One that nobody has."""
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


def make_namespace(kubectl: Kubectl, name: str, *, restricted: bool = True) -> None:
    """Make it; with `restricted`, pods that ask for more than they need are refused."""
    kubectl("create", "namespace", name)
    mark_namespace(kubectl, name, restricted=restricted)


def mark_namespace(kubectl: Kubectl, name: str, *, restricted: bool = True) -> None:
    """Mark one that is there already, before there is anything in it."""
    kubectl("label", "namespace", name, _MARK, *([_RESTRICTED] if restricted else []))


def made_namespaces(kubectl: Kubectl) -> list[str]:
    """All that there are, but for those that are about to go."""
    which = (f"--selector={_MARK}", "--field-selector=status.phase=Active")
    found = kubectl("get", "namespaces", *which, "--output=name").split()
    return [name.removeprefix("namespace/") for name in found]


@contextmanager
def fresh_namespace(kubectl: Kubectl, prefix: str = "test", *, restricted: bool = True) -> Iterator[str]:
    """One of a name that nobody has, which goes afterwards with all that is in it."""
    name = new_name(prefix)
    make_namespace(kubectl, name, restricted=restricted)
    try:
        yield name
    finally:
        kubectl("delete", "namespace", name, "--wait=false")

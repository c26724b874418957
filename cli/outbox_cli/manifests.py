"""The resources in the manifests of a project."""

from collections.abc import Sequence
from pathlib import Path

from outbox_cli.dev.manifests import Manifests, read
from outbox_cli.dev.sources import Sources
from outbox_cli.failures import CommandError

DEFAULT_NAMESPACE = "default"
"""Where a resource is whose manifest does not say, as to kubectl."""


def manifests_at(paths: Sequence[Path], namespace: str | None) -> Manifests:
    """What files and folders say; raises an ExceptionGroup of all mistakes."""
    found = read(Sources.of(paths, ()).texts(), namespace or DEFAULT_NAMESPACE)
    if found.complaints:
        raise ExceptionGroup("mistakes in manifests", [CommandError(each) for each in found.complaints])
    return found

"""What all end-to-end tests stand on: a cluster that has our images, and an operator in it.

It is made once, however many processes run the tests.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chart.helm import Helm
from tests.cluster.cluster import Cluster, known, told
from tests.cluster.cluster import cluster as start_cluster
from tests.cluster.programs import find_helm, find_kubectl
from tests.e2e.installation import NAMESPACE, Installation
from tests.e2e.kubectl import Kubectl
from tests.e2e.loading import load
from tests.e2e.namespaces import make_namespace
from tests.images.build import build

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Stage:
    """A cluster with an operator, in a namespace that enforces restricted pod security."""

    cluster: Cluster
    kubectl: Kubectl
    """As the cluster's administrator."""
    installation: Installation
    base: str
    """The image that our own are built on."""

    def told(self) -> dict[str, Any]:
        """What another process has to know of it."""
        helm = self.installation.helm.folder
        return {"cluster": told(self.cluster), "helm": str(helm), "base": self.base}


def shared(what: Mapping[str, Any], progress: Progress) -> Stage:
    """The stage that another process has made and tells of."""
    return _stage(known(what["cluster"]), Path(what["helm"]), what["base"], progress)


@contextmanager
def made(asked: str, progress: Progress) -> Iterator[Stage]:
    """One in the cluster that was asked for, and its end."""
    with (
        start_cluster(progress, asked) as cluster,
        tempfile.TemporaryDirectory(prefix="outbox-helm-") as folder,
    ):
        built = build(progress)
        stage = _stage(cluster, Path(folder), built.base, progress)
        load(cluster, stage.kubectl, built, progress)
        # Of a run that was killed.
        stage.installation.remove()
        make_namespace(stage.kubectl, NAMESPACE)
        try:
            progress("installing the operator with Helm …")
            stage.installation.install()
            yield stage
        finally:
            stage.installation.remove()


def _stage(cluster: Cluster, helm: Path, base: str, progress: Progress) -> Stage:
    kubectl = Kubectl(find_kubectl(os.environ, progress), Path(cluster.kubeconfig))
    program = find_helm(os.environ, progress, 3)
    return Stage(cluster, kubectl, Installation(Helm(program, helm, cluster.kubeconfig), kubectl), base)

"""The operator, installed by Helm as the README says, with the images that were built here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.chart.helm import CHART, RELEASE, Helm
from tests.e2e import readme
from tests.e2e.kubectl import Kubectl, Manifest
from tests.e2e.namespaces import made_namespaces
from tests.images.catalogue import TAG

NAMESPACE = "outbox-system"
_WAIT = ("--wait", "--timeout=110s")
_IMAGES = {"image": {"tag": TAG}, "relay": {"image": {"tag": TAG}}}


@dataclass(frozen=True)
class Installation:
    """A release of the chart, and the pods that it makes."""

    helm: Helm
    kubectl: Kubectl
    namespace: str = NAMESPACE
    values: Mapping[str, Any] = field(default_factory=dict)
    """What every install and upgrade has beside the images."""

    def install(self, **values: Any) -> str:
        """By the command of the README; what Helm says."""
        [command] = readme.commands("helm")
        return self.helm.run(*command, "--timeout=110s", values=self._values(values))

    def upgrade(self, chart: Path = CHART, **values: Any) -> str:
        """To another chart, or to other values."""
        where = ("--namespace", self.namespace)
        return self.helm.run("upgrade", RELEASE, str(chart), *where, *_WAIT, values=self._values(values))

    def uninstall(self) -> str:
        """And wait until its pods are gone."""
        where = ("--namespace", self.namespace)
        return self.helm.run("uninstall", RELEASE, *where, "--cascade=foreground", *_WAIT)

    def is_installed(self) -> bool:
        return RELEASE in self.helm.run("list", "--all", "--short", "--namespace", self.namespace).split()

    def remove(self) -> None:
        """Uninstall it where it is installed, and take its namespace away where that is of our making."""
        if self.namespace in made_namespaces(self.kubectl):
            if self.is_installed():
                self.uninstall()
            self.kubectl("delete", "namespace", self.namespace)

    def test(self) -> str:
        """`helm test`; what it says."""
        return self.helm.run("test", RELEASE, "--namespace", self.namespace, "--timeout=110s")

    def pods(self) -> list[Manifest]:
        """The operators, the leader among them."""
        selector = f"--selector=app.kubernetes.io/instance={RELEASE},app.kubernetes.io/name={RELEASE}"
        found: list[Manifest] = self.kubectl.get("pods", f"--namespace={self.namespace}", selector)["items"]
        return found

    def leader(self) -> str:
        """The name of the pod that leads; empty while none does."""
        lease = self.kubectl.get("lease", RELEASE, f"--namespace={self.namespace}")
        # Behind the pod's name there is a mark by which its restarts differ.
        return str(lease["spec"].get("holderIdentity") or "").rpartition("-")[0]

    def logs(self) -> str:
        """What all operators have written, each line behind its pod's name."""
        selector = f"--selector=app.kubernetes.io/instance={RELEASE}"
        return self.kubectl("logs", f"--namespace={self.namespace}", selector, "--prefix", "--tail=-1")

    def _values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {**_IMAGES, **self.values, **values}

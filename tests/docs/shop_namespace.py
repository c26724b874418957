"""The namespace `shop` of the pages' commands, with the resources of the example."""

import json

from tests.docs.pages import REPOSITORY
from tests.operator.control_plane.api import Api

_MANIFESTS = REPOSITORY / "examples" / "shop" / "manifests"


class ShopNamespace:
    """One for all pages, each of which finds what the one before it left."""

    name = "shop"

    def __init__(self, api: Api) -> None:
        self.api = api
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.name}}
        self._apply("-", text=json.dumps(namespace))
        for file in ("relay.yaml", "listeners.yaml"):
            self._apply(str(_MANIFESTS / file))

    def point_at(self, database_url: str, broker_url: str) -> None:
        """Have the Secrets lead to these."""
        urls = {"shop-db": database_url, "shop-rabbitmq": broker_url}
        secrets = [
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {"uri": url}}
            for name, url in urls.items()
        ]
        self._apply("-", text=json.dumps({"apiVersion": "v1", "kind": "List", "items": secrets}))

    def _apply(self, file: str, text: str = "") -> None:
        done = self.api.kubectl("apply", "--namespace", self.name, "--filename", file, text=text)
        assert done.returncode == 0, done.stderr

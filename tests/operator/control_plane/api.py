"""The API of a control plane, as far as tests need it, and kubectl as a user types it."""

import json
import os
import subprocess
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any

from outbox_operator.crds import DEFINITIONS, Definition
from outbox_operator.resources import API_GROUP, API_VERSION
from tests.operator.control_plane.server import ControlPlane

Manifest = dict[str, Any]

_HTTP_SECONDS = 30
_KUBECTL_SECONDS = 60
_PLURALS = {definition.kind: definition.plural for definition in DEFINITIONS}


class RefusedError(Exception):
    """The API server's refusal; its text is what a user reads."""


@dataclass(frozen=True)
class Api:
    """What an administrator may do."""

    control_plane: ControlPlane

    def request(
        self, method: str, path: str, body: Manifest | None = None, content_type: str = "application/json"
    ) -> Manifest:
        """What the server answers, or a `RefusedError` with its words."""
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self.control_plane.context)
        )
        request = urllib.request.Request(  # noqa: S310 - the address is our own server's
            f"{self.control_plane.url}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": content_type, "Accept": "application/json"},
        )
        try:
            with opener.open(request, timeout=_HTTP_SECONDS) as response:
                answer: Manifest = json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                refusal = error.read().decode(errors="replace")
            raise RefusedError(_message(refusal)) from None
        return answer

    def define(self, definition: Definition) -> None:
        """Install a CustomResourceDefinition, where it is not there already."""
        manifest = definition.manifest()
        self.request(
            "PATCH",
            f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{manifest['metadata']['name']}"
            "?fieldManager=tests",
            manifest,
            "application/apply-patch+yaml",
        )

    def is_served(self, definition: Definition) -> bool:
        """Whether the server knows the resource by now."""
        try:
            self.request("GET", f"/apis/{API_GROUP}/{API_VERSION}/{definition.plural}")
        except RefusedError:
            return False
        return True

    def make_namespace(self, name: str) -> None:
        self.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def create(self, manifest: Manifest) -> Manifest:
        """Create a custom resource, and give it back as the server stored it."""
        # As kubectl asks: a field that nobody knows is an error.
        return self.request("POST", f"{_collection(manifest)}?fieldValidation=Strict", manifest)

    def get(self, manifest: Manifest) -> Manifest:
        return self.request("GET", _address(manifest))

    def replace(self, manifest: Manifest, subresource: str = "") -> Manifest:
        """Update a custom resource, or a subresource such as `/status`."""
        return self.request("PUT", f"{_address(manifest)}{subresource}?fieldValidation=Strict", manifest)

    def kubectl(self, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run kubectl as a user does, with `text` as its input."""
        plane = self.control_plane
        inherited = {name: os.environ[name] for name in ("PATH",) if name in os.environ}
        return subprocess.run(
            [plane.programs.kubectl, *arguments],
            env={**inherited, "KUBECONFIG": str(plane.kubeconfig), "HOME": str(plane.folder)},
            input=text,
            capture_output=True,
            text=True,
            timeout=_KUBECTL_SECONDS,
            check=False,
        )


def _message(refusal: str) -> str:
    try:
        return str(json.loads(refusal)["message"])
    except (ValueError, KeyError, TypeError):
        return refusal


def _collection(manifest: Manifest) -> str:
    namespace, plural = manifest["metadata"]["namespace"], _PLURALS[manifest["kind"]]
    return f"/apis/{API_GROUP}/{API_VERSION}/namespaces/{namespace}/{plural}"


def _address(manifest: Manifest) -> str:
    return f"{_collection(manifest)}/{manifest['metadata']['name']}"

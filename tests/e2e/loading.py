"""Images that a cluster is given once, however many runs it serves."""

import json
from collections.abc import Callable

from tests.cluster.cluster import Cluster
from tests.e2e.kubectl import Kubectl, Manifest
from tests.images.build import Built

# In the cluster itself, for what it knows ends with it.
_NOTE: Manifest = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"namespace": "kube-public", "name": "outbox-test-images"},
}


def load(cluster: Cluster, kubectl: Kubectl, built: Built, progress: Callable[[str], None]) -> None:
    """Give the cluster the images that it does not have yet."""
    known = _known(kubectl)
    for archive in built.archives.values():
        key = archive.path.stem
        image = built.buildah.image_id(archive.image.reference) or ""
        if known.get(key) != image:
            progress(f"giving {archive.image.name} to the cluster …")
            cluster.load(archive.path)
            known[key] = image
    kubectl.apply({**_NOTE, "data": {key: image for key, image in known.items() if image}})


def _known(kubectl: Kubectl) -> dict[str, str]:
    metadata = _NOTE["metadata"]
    where = (f"--namespace={metadata['namespace']}", metadata["name"], "--ignore-not-found", "--output=json")
    found = kubectl("get", "configmap", *where)
    return dict(json.loads(found).get("data", {})) if found else {}

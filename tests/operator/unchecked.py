"""Resources that the API server has, and would not take today."""

import json
import urllib.request
from base64 import b64encode
from typing import Any

from tests.operator.control_plane.api import Manifest
from tests.operator.site import Site


def store_unchecked(site: Site, manifest: Manifest, **spec: Any) -> None:
    """Change a stored resource behind the API server's back, as if an older version had let it in."""
    stored = {**site.get(manifest)}
    stored["spec"] = {**stored["spec"], **spec}
    *_, plural, name = site.path_of(manifest).split("/")
    key = f"/registry/outbox.dev/{plural}/{site.namespace}/{name}"
    put = {"key": b64encode(key.encode()).decode(), "value": b64encode(json.dumps(stored).encode()).decode()}
    # The folder of etcd is called after its port; there are several where a port was taken.
    folders = site.api.control_plane.folder.parent.glob("etcd-*")
    port = max(folders, key=lambda folder: folder.stat().st_mtime).name.removeprefix("etcd-")
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v3/kv/put", data=json.dumps(put).encode())
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=10) as response:
        response.read()
    assert site.get(manifest)["spec"] == stored["spec"]

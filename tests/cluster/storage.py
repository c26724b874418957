"""Volumes for those who claim one of the default class, as on any cluster."""

from pathlib import Path
from typing import Any

STORAGE_CLASS = "standard"
"""The name that kind's has too."""
_COUNT = 100


def volumes(folder: Path) -> dict[str, Any]:
    """A default class and volumes of it: folders of the node, since nobody here makes them when asked."""
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    items = [storage_class, *(_volume(folder / str(number)) for number in range(_COUNT))]
    return {"apiVersion": "v1", "kind": "List", "items": items}


def make_folders(folder: Path) -> None:
    """Nobody changes the owner of such a volume: each is anybody's to write to."""
    for number in range(_COUNT):
        path = folder / str(number)
        path.mkdir(parents=True)
        path.chmod(0o777)


def _volume(path: Path) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"volume-{path.name}"},
        "spec": {
            "storageClassName": STORAGE_CLASS,
            "capacity": {"storage": "100Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain",
            "hostPath": {"path": str(path), "type": "Directory"},
        },
    }

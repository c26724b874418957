"""The images that a cluster needs: the project's own, the example's, and its Postgres and RabbitMQ."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
_SHOP = REPOSITORY / "examples" / "shop"
_SERVICES = REPOSITORY / "tests" / "e2e" / "images"
TAG = str(tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]["version"])
"""The release that this is: what the chart takes where it is told of no other."""


@dataclass(frozen=True)
class Image:
    """How one image is built."""

    name: str
    """What manifests call it, with its tag."""
    context: Path
    """The folder that has the Dockerfile, and what that copies."""
    target: str | None = None
    """The stage of the Dockerfile; the last where there is none."""
    arguments: Mapping[str, str] = field(default_factory=dict)
    """Build arguments; the value {base} stands for the base image."""

    @property
    def reference(self) -> str:
        """The full name: what a cluster's node, and Docker, make of a name without a registry."""
        return f"docker.io/library/{self.name}"


def _own(part: str) -> Image:
    return Image(f"outbox-{part}:{TAG}", REPOSITORY, part, {"BASE_IMAGE": "{base}"})


def _shop(version: str, target: str | None = None) -> Image:
    return Image(f"shop:{version}", _SHOP, target, {"WORKER_IMAGE": WORKER.reference})


def _service(name: str) -> Image:
    """One that answers to the official image's name: the example's manifests run with either."""
    return Image(name, _SERVICES / name.partition(":")[0], arguments={"BASE_IMAGE": "{base}"})


OPERATOR = _own("operator")
RELAY = _own("relay")
WORKER = _own("worker")
SHOP = _shop("1.0")
FIXED_SHOP = _shop("1.1", "fixed")
"""The same application, after somebody mended the listener that always fails."""
POSTGRES = _service("postgres:17")
RABBITMQ = _service("rabbitmq:4-management")
NEWCOMER = _service("newcomer:test")
"""A machine to try the project on, for no cluster."""

IMAGES = (OPERATOR, RELAY, WORKER, SHOP, FIXED_SHOP, POSTGRES, RABBITMQ)
"""All of them, each after those that it is built from."""

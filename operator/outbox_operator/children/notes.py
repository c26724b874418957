"""What the operator notes on a Deployment for its next look: which children there are, and which Secrets."""

from outbox_operator.children.family import Children
from outbox_operator.children.manifest import Manifest

CHILDREN = "outbox.dev/children"
"""The annotation that has the kinds of the other children."""
RETIRED_SECRETS = "outbox.dev/retired-secrets"
"""The annotation that has the Secrets which pods of before may still need."""

NOTHING_RETIRED: Manifest = {"metadata": {"annotations": {RETIRED_SECRETS: None}}}
"""A merge patch, for when those pods are gone."""


def with_notes(desired: Manifest, live: Manifest | None, family: Children) -> Manifest:
    """A Deployment as it should be, with what has to be noted on it."""
    kinds = sorted(child["kind"] for child in family.wanted if child["kind"] != desired["kind"])
    noted = (*retired_secrets(live), secret_of(live)) if live else ()
    retired = [name for name in dict.fromkeys(noted) if name and name != secret_of(desired)]
    metadata = desired["metadata"]
    annotations = {
        **metadata.get("annotations", {}),
        CHILDREN: ",".join(kinds),
        **({RETIRED_SECRETS: ",".join(retired)} if retired else {}),
    }
    return {**desired, "metadata": {**metadata, "annotations": annotations}}


def children_of(live: Manifest) -> tuple[str, ...]:
    """The kinds of the children that were made beside it."""
    return _noted(live, CHILDREN)


def retired_secrets(live: Manifest) -> tuple[str, ...]:
    """The Secrets that only pods of before need."""
    return _noted(live, RETIRED_SECRETS)


def secret_of(deployment: Manifest) -> str | None:
    """The Secret that its pods get the broker's URL from."""
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        for variable in container.get("env", ()):
            if variable["name"] == "OUTBOX_BROKER_URL":
                name: str | None = variable.get("valueFrom", {}).get("secretKeyRef", {}).get("name")
                return name
    return None


def _noted(live: Manifest, annotation: str) -> tuple[str, ...]:
    text = live["metadata"].get("annotations", {}).get(annotation, "")
    return tuple(filter(None, text.split(",")))

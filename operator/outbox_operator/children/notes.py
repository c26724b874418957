"""What the operator notes on a Deployment for its next look: which children there are, and which Secrets."""

import re
from datetime import timedelta

from outbox_operator.children.family import Children
from outbox_operator.children.manifest import Manifest

_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]+)?")

CHILDREN = "outbox.dev/children"
"""The annotation that has the kinds of the other children."""
RETIRED_SECRETS = "outbox.dev/retired-secrets"
"""The annotation that has the Secrets which pods of before may still need."""
RETIRED_DELAYS = "outbox.dev/retired-delays"
"""The annotation that has the retry delays, in seconds, which pods of before may still use."""

NOTHING_RETIRED: Manifest = {"metadata": {"annotations": {RETIRED_SECRETS: None, RETIRED_DELAYS: None}}}
"""A merge patch, for when those pods are gone."""


def with_notes(desired: Manifest, live: Manifest | None, family: Children) -> Manifest:
    """A Deployment as it should be, with what has to be noted on it."""
    kinds = sorted(child["kind"] for child in family.wanted if child["kind"] != desired["kind"])
    noted = (*retired_secrets(live), secret_of(live)) if live else ()
    retired = [name for name in dict.fromkeys(noted) if name and name != secret_of(desired)]
    used = (*_noted(live, RETIRED_DELAYS), *_template_delays(live)) if live else ()
    delays = [delay for delay in dict.fromkeys(used) if delay not in _template_delays(desired)]
    metadata = desired["metadata"]
    annotations = {
        **metadata.get("annotations", {}),
        CHILDREN: ",".join(kinds),
        **({RETIRED_SECRETS: ",".join(retired)} if retired else {}),
        **({RETIRED_DELAYS: ",".join(delays)} if delays else {}),
    }
    return {**desired, "metadata": {**metadata, "annotations": annotations}}


def children_of(live: Manifest) -> tuple[str, ...]:
    """The kinds of the children that were made beside it."""
    return _noted(live, CHILDREN)


def retired_secrets(live: Manifest) -> tuple[str, ...]:
    """The Secrets that only pods of before need."""
    return _noted(live, RETIRED_SECRETS)


def has_retired(live: Manifest) -> bool:
    """Whether something is kept for pods of before."""
    return bool(_noted(live, RETIRED_SECRETS) or _noted(live, RETIRED_DELAYS))


def live_delays(live: Manifest | None) -> tuple[timedelta, ...]:
    """The retry delays that its pods use, those of before included."""
    texts = (*_template_delays(live), *_noted(live, RETIRED_DELAYS)) if live else ()
    return tuple(timedelta(seconds=float(text)) for text in dict.fromkeys(texts) if _SECONDS.fullmatch(text))


def secret_of(deployment: Manifest) -> str | None:
    """The Secret that its pods get the broker's URL from."""
    variable = _variable(deployment, "OUTBOX_BROKER_URL")
    name: str | None = variable.get("valueFrom", {}).get("secretKeyRef", {}).get("name")
    return name


def _template_delays(deployment: Manifest) -> tuple[str, ...]:
    if _variable(deployment, "OUTBOX_ORDERED").get("value") == "true":
        return ()
    text: str = _variable(deployment, "OUTBOX_RETRY_DELAYS").get("value", "")
    return tuple(filter(None, text.split(",")))


def _variable(deployment: Manifest, name: str) -> Manifest:
    """A variable of its pods; empty if they do not have it."""
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        for variable in container.get("env", ()):
            if variable["name"] == name:
                return dict(variable)
    return {}


def _noted(live: Manifest, annotation: str) -> tuple[str, ...]:
    text = live["metadata"].get("annotations", {}).get(annotation, "")
    return tuple(filter(None, text.split(",")))

"""From the container that a pod would have to a process on this machine: what a kubelet does. Pure."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from outbox_core.url_hosts import partition_hosts
from outbox_operator.children.pod_template import pod_template
from outbox_operator.children.workload import Workload

Manifest: TypeAlias = Mapping[str, Any]
Values: TypeAlias = Mapping[str, Mapping[str, str]]
"""Keys and texts, by the name of the Secret or ConfigMap that has them."""

MOST_REPLICAS = 4
"""More processes of one resource tell a person nothing new."""

_REFERENCE = re.compile(r"\$(\$|\(([A-Za-z_.-][A-Za-z0-9_.-]*)\))")


class ConfigError(Exception):
    """A container refers to something that is not there."""


@dataclass(frozen=True, slots=True)
class Program:
    """What runs as a process."""

    arguments: tuple[str, ...]
    """What follows the name of the interpreter."""
    environment: Mapping[str, str] = field(repr=False)
    """What it is told, beside what everybody has on this machine."""
    shutdown_seconds: float
    """How long it may take to finish."""


@dataclass(frozen=True, slots=True)
class References:
    """What the environment of a container may refer to, in one namespace."""

    secrets: Values = field(repr=False)
    """The Secrets."""
    config_maps: Values
    """The ConfigMaps."""


def program_of(workload: Workload, references: References) -> Program | None:
    """The process in place of its pods; None where their image alone knows what to run.

    A `ConfigError` where it could not be started.
    """
    if not workload.command:
        return None
    [container] = pod_template(workload)["spec"]["containers"]
    _, *arguments = container["command"]
    return Program(
        tuple(arguments),
        _environment(container["env"], references),
        workload.shutdown_timeout.total_seconds(),
    )


def texts_of(manifest: Manifest) -> dict[str, str]:
    """What a Secret or a ConfigMap holds, as far as it is text."""
    found = {}
    is_secret = manifest.get("kind") == "Secret"
    for key, value in (manifest.get("data") or {}).items():
        try:
            found[key] = base64.b64decode(value, validate=True).decode() if is_secret else str(value)
        except (binascii.Error, TypeError, ValueError):
            continue
    return found | {key: str(value) for key, value in (manifest.get("stringData") or {}).items()}


def texts_of_url(url: str) -> dict[str, str]:
    """A URL as a Secret for a database or a broker has it: whole, and in parts."""
    before, hosts, after = partition_hosts(url)
    parts = urlsplit(f"{before}{after}")
    places = [urlsplit(f"//{host}") for host in hosts.split(",")]
    path = unquote(parts.path.removeprefix("/"))
    return {
        "uri": url,
        "host": ",".join(place.hostname or "" for place in places),
        "port": str(places[0].port or ""),
        "username": unquote(parts.username or ""),
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        "database": path,
        "dbname": path,
        "vhost": path or "/",
    }


def _environment(variables: Iterable[Manifest], references: References) -> dict[str, str]:
    """The variables in their order, each of which may refer to those before it."""
    found: dict[str, str] = {}
    for variable in variables:
        name = variable["name"]
        match variable:
            case {"valueFrom": dict(source)}:
                value = _referred(name, source, references)
                if value is not None:
                    found[name] = value
            case _:
                found[name] = _expanded(str(variable.get("value") or ""), found)
    return found


def _referred(name: str, source: Manifest, references: References) -> str | None:
    match source:
        case {"secretKeyRef": dict(reference)}:
            return _looked_up("Secret", reference, references.secrets)
        case {"configMapKeyRef": dict(reference)}:
            return _looked_up("ConfigMap", reference, references.config_maps)
        case _:
            kind = next(iter(source), "nothing")
            raise ConfigError(
                f"variable {name} comes from {kind}, which only a cluster has; give it a value for outbox dev"
            )


def _looked_up(kind: str, reference: Manifest, values: Values) -> str | None:
    name, key = reference.get("name", ""), reference.get("key", "")
    if (value := values.get(name, {}).get(key)) is not None:
        return value
    if reference.get("optional"):
        return None
    what = f'{kind} "{name}" has no key "{key}"' if name in values else f'there is no {kind} "{name}"'
    raise ConfigError(f"{what}; write it into a manifest that outbox dev reads")


def _expanded(text: str, known: Mapping[str, str]) -> str:
    """As Kubernetes reads it: `$(NAME)` is a variable that is known, `$$` is a dollar."""

    def meant(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else known.get(match[2], match[0])

    return _REFERENCE.sub(meant, text)

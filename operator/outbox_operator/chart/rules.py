"""The rules of the operator's roles as a template: they are `outbox_operator.rbac`'s, and no others."""

from collections.abc import Iterable
from typing import Any

import yaml

from outbox_operator.cluster.kinds import SECRET
from outbox_operator.rbac import ADMINISTRATOR_RIGHTS, LEASE_RIGHTS, RESOURCE_RIGHTS, Right

_NAMED_VERBS = ("watch",)
"""What is only done to Secrets that resources refer to. The others the operator makes itself, under names
that nobody knows beforehand."""

_SECRETS = """\
{{- with .Values.rbac.secretNames }}
{NAMED}  resourceNames: {{ toJson . }}
{OTHERS}{{- else }}
{ALL}{{- end }}
"""

_ADMINISTRATORS = "{{ toJson .Values.settings.administratorSecrets }}"


def text() -> str:
    """The template without its heading."""
    resources = "".join(
        _secrets(right) if right.kind == SECRET else _rules([right]) for right in RESOURCE_RIGHTS
    )
    return (
        f'{{{{- define "outbox-operator.resourceRules" -}}}}\n{resources}{{{{- end }}}}\n\n'
        f'{{{{- define "outbox-operator.leaseRules" -}}}}\n{_leases()}{{{{- end }}}}\n\n'
        f'{{{{- define "outbox-operator.administratorRules" -}}}}\n{_administrators()}{{{{- end }}}}\n'
    )


def _secrets(right: Right) -> str:
    named, others = _split(right, _NAMED_VERBS)
    return (
        _SECRETS.replace("{NAMED}", _rules([named]))
        .replace("{OTHERS}", _rules([others]))
        .replace("{ALL}", _rules([right]))
    )


def _leases() -> str:
    """By name, but for the creation: of that the API server does not know the name when it asks."""
    split = [_split(right, ("create",)) for right in LEASE_RIGHTS]
    names = '  resourceNames: [{{ include "outbox-operator.fullname" . }}]\n'
    return "".join(_rules([unnamed]) + _rules([named]) + names for unnamed, named in split)


def _administrators() -> str:
    """By name: whatever else is in the operator's namespace is nothing to resources."""
    return f"{_rules(ADMINISTRATOR_RIGHTS)}  resourceNames: {_ADMINISTRATORS}\n"


def _split(right: Right, verbs: tuple[str, ...]) -> tuple[Right, Right]:
    """The right in two: to do one of `verbs`, and the others."""
    apart = tuple(verb for verb in right.verbs if verb in verbs)
    rest = tuple(verb for verb in right.verbs if verb not in verbs)
    return (
        Right(right.kind, apart, right.subresource),
        Right(right.kind, rest, right.subresource),
    )


def _rules(rights: Iterable[Right]) -> str:
    rules: list[dict[str, Any]] = [right.manifest() for right in rights]
    return yaml.safe_dump(rules, sort_keys=False, default_flow_style=None, width=110)

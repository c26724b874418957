"""The CustomResourceDefinitions as templates: Helm does not upgrade what is in a chart's `crds/`."""

from typing import Any

import yaml

from outbox_operator.crds import DEFINITIONS, Definition

_TEMPLATE = """\
{{{{- if .Values.crds.install }}}}
apiVersion: {api_version}
kind: {kind}
metadata:
  name: {name}
  labels:
    {{{{- include "outbox-operator.labels" . | nindent 4 }}}}
  {{{{- if .Values.crds.keep }}}}
  annotations:
    helm.sh/resource-policy: keep
  {{{{- end }}}}
spec:
{spec}{{{{- end }}}}
"""


def texts() -> dict[str, str]:
    """The text of each template without its heading, by the file's name."""
    return {f"crd-{definition.plural}.yaml": _text(definition) for definition in DEFINITIONS}


def _text(definition: Definition) -> str:
    manifest = definition.manifest()
    return _TEMPLATE.format(
        api_version=manifest["apiVersion"],
        kind=manifest["kind"],
        name=manifest["metadata"]["name"],
        spec=_spec(manifest["spec"]),
    )


def _spec(spec: dict[str, Any]) -> str:
    text = yaml.dump(spec, Dumper=_Dumper, sort_keys=False, width=108, allow_unicode=True)
    # A description may have braces in it.
    text = text.replace("{{", '{{ "{{" }}')
    return "".join(f"  {line}" for line in text.splitlines(keepends=True))


class _Dumper(yaml.SafeDumper):
    """Without anchors, as in `crds/`."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML's signature
        return True

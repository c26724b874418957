{{- /* Made by `python -m outbox_operator.chart` from operator/outbox_operator/rbac.py; change it there. */ -}}
{{- define "outbox-operator.resourceRules" -}}
- apiGroups: [outbox.dev]
  resources: [outboxrelays]
  verbs: [list, watch, patch]
- apiGroups: [outbox.dev]
  resources: [outboxrelays/status]
  verbs: [patch]
- apiGroups: [outbox.dev]
  resources: [outboxlisteners]
  verbs: [list, watch, patch]
- apiGroups: [outbox.dev]
  resources: [outboxlisteners/status]
  verbs: [patch]
{{- with .Values.rbac.secretNames }}
- apiGroups: ['']
  resources: [secrets]
  verbs: [watch]
  resourceNames: {{ toJson . }}
- apiGroups: ['']
  resources: [secrets]
  verbs: [get, create, patch, delete]
{{- else }}
- apiGroups: ['']
  resources: [secrets]
  verbs: [get, watch, create, patch, delete]
{{- end }}
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, create, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [podmonitors]
  verbs: [get, create, patch, delete]
- apiGroups: [keda.sh]
  resources: [scaledobjects]
  verbs: [get, create, patch, delete]
- apiGroups: [keda.sh]
  resources: [triggerauthentications]
  verbs: [get, create, patch, delete]
- apiGroups: ['']
  resources: [pods]
  verbs: [list]
- apiGroups: ['']
  resources: [pods/log]
  verbs: [get]
- apiGroups: ['']
  resources: [events]
  verbs: [create]
{{- end }}

{{- define "outbox-operator.leaseRules" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, update]
  resourceNames: [{{ include "outbox-operator.fullname" . }}]
{{- end }}

{{- define "outbox-operator.administratorRules" -}}
- apiGroups: ['']
  resources: [secrets]
  verbs: [get, watch]
  resourceNames: {{ toJson .Values.settings.administratorSecrets }}
{{- end }}

{{- /* The pod security standard "restricted". The user is the image's own. */ -}}
{{- define "outbox-operator.podSecurity" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "outbox-operator.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- /* What the operator is told. Who it is among the replicas follows from the host's name, which is the pod's. */ -}}
{{- define "outbox-operator.environment" -}}
- name: OUTBOX_RELAY_IMAGE
  value: {{ include "outbox-operator.imageReference" (list .Values.relay.image .Chart.AppVersion) | quote }}
- name: OUTBOX_NAMESPACES
  value: {{ join "," .Values.watchNamespaces | quote }}
- name: OUTBOX_LEASE_NAMESPACE
  value: {{ .Release.Namespace | quote }}
- name: OUTBOX_LEASE_NAME
  value: {{ include "outbox-operator.fullname" . | quote }}
{{- range $name, $value := .Values.settings }}
- name: OUTBOX_{{ $name | snakecase | upper }}
  value: {{ (kindIs "slice" $value | ternary (join "," $value) (toString $value)) | quote }}
{{- end }}
- name: OUTBOX_LOG_LEVEL
  value: {{ .Values.log.level | quote }}
- name: OUTBOX_LOG_FORMAT
  value: {{ .Values.log.format | quote }}
- name: OUTBOX_PROBE_PORT
  value: "8080"
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

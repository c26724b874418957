{{- define "outbox-operator.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{- /* Room is left for what a Deployment puts behind it. */ -}}
{{- define "outbox-operator.fullname" -}}
{{- $name := include "outbox-operator.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- /* What belongs to the cluster as a whole has the namespace in its name: there may be such a release in another. */ -}}
{{- define "outbox-operator.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "outbox-operator.fullname" .) }}
{{- end }}

{{- define "outbox-operator.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "outbox-operator.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: name the ServiceAccount that is there, or let the chart make one with serviceAccount.create=true" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- /* Never changes from one version to the next: a Deployment's selector cannot be changed. */ -}}
{{- define "outbox-operator.selector" -}}
app.kubernetes.io/name: {{ include "outbox-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "outbox-operator.labels" -}}
{{ include "outbox-operator.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* The labels, and more of a user's beside them. */ -}}
{{- define "outbox-operator.labelsWith" -}}
{{- merge (include "outbox-operator.labels" (index . 0) | fromYaml) (index . 1) | toYaml }}
{{- end }}

{{- /* Of an image and the tag that it has where it says none. */ -}}
{{- define "outbox-operator.imageReference" -}}
{{- $image := index . 0 }}
{{- if $image.digest }}
{{- printf "%s@%s" $image.repository $image.digest }}
{{- else }}
{{- printf "%s:%s" $image.repository (default (index . 1) $image.tag) }}
{{- end }}
{{- end }}

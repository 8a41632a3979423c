{{- /* The chart's name, or what replaces it. */}}
{{- define "embertide.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- /* The beginning of all names. Names of Services may have 63 characters, ours add up to 15. */}}
{{- define "embertide.fullname" -}}
{{- $name := include "embertide.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 48 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 48 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "embertide.operatorName" -}}
{{ include "embertide.fullname" . }}-operator
{{- end }}

{{- /* Names of what is the cluster's, or in a namespace that other releases watch too. A namespace has
       no colon, so no two releases have the same. */}}
{{- define "embertide.clusterName" -}}
{{ include "embertide.namespace" . }}:{{ include "embertide.fullname" . }}
{{- end }}

{{- define "embertide.outputsName" -}}
{{ include "embertide.fullname" . }}-outputs
{{- end }}

{{- define "embertide.serviceAccountName" -}}
{{ .Values.serviceAccount.name | default (include "embertide.operatorName" .) }}
{{- end }}

{{- define "embertide.namespace" -}}
{{ .Values.namespaceOverride | default .Release.Namespace }}
{{- end }}

{{- /* Labels of every object. */}}
{{- define "embertide.labels" -}}
{{ include "embertide.instanceLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: embertide
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "embertide.instanceLabels" -}}
app.kubernetes.io/name: {{ include "embertide.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* Labels of the operator's objects, and those by which its pod is found. */}}
{{- define "embertide.operatorLabels" -}}
{{ include "embertide.labels" . }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "embertide.operatorSelector" -}}
{{ include "embertide.instanceLabels" . }}
app.kubernetes.io/component: operator
{{- end }}

{{- /* Who may reach port 8080 of workers, as JSON: the operator, and who the values name. */}}
{{- define "embertide.httpPeers" -}}
{{- $namespace := dict "kubernetes.io/metadata.name" (include "embertide.namespace" .) }}
{{- $labels := include "embertide.operatorSelector" . | fromYaml }}
{{- $operator := dict "namespaceSelector" (dict "matchLabels" $namespace) "podSelector" (dict "matchLabels" $labels) }}
{{- prepend (.Values.worker.networkPolicy.from | default list) $operator | toJson }}
{{- end }}

{{- /* Pod templates of workers by namespace, as JSON. */}}
{{- define "embertide.namespacePodTemplates" -}}
{{- $found := dict }}
{{- range $name, $values := .Values.worker.namespaces }}
{{- $_ := set $found $name ($values.podTemplate | default dict) }}
{{- end }}
{{- toJson $found }}
{{- end }}

{{- /* Resources of a container without amounts that are null, by which a default is taken away. */}}
{{- define "embertide.resources" -}}
{{- $found := dict }}
{{- range $section, $amounts := . }}
{{- $kept := $amounts }}
{{- if kindIs "map" $amounts }}
{{- $kept = dict }}
{{- range $name, $amount := $amounts }}
{{- if not (kindIs "invalid" $amount) }}{{ $_ := set $kept $name $amount }}{{ end }}
{{- end }}
{{- end }}
{{- if $kept }}{{ $_ := set $found $section $kept }}{{ end }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{- define "embertide.operatorImage" -}}
{{- $image := .Values.image }}
{{- $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- with $image.digest }}@{{ . }}{{ end }}
{{- end }}

{{- define "embertide.workerImage" -}}
{{ .Values.worker.image | default (printf "ghcr.io/embertide/worker:%s-cpu" .Chart.AppVersion) }}
{{- end }}

{{- define "embertide.workerImageCuda" -}}
{{ .Values.worker.imageCuda | default (printf "ghcr.io/embertide/worker:%s-cuda" .Chart.AppVersion) }}
{{- end }}

{{- /* metadata of a namespaced object of the operator: name, namespace, labels. */}}
{{- define "embertide.operatorMetadata" -}}
name: {{ include "embertide.operatorName" . }}
namespace: {{ include "embertide.namespace" . | quote }}
labels: {{- include "embertide.operatorLabels" . | nindent 2 }}
{{- end }}

{{- /* Refuses braces that `submit` would refuse at the firing, in every text but those of spec.workers. */}}
{{- define "embertide.checkPlaceholders" -}}
{{- $ask := . }}
{{- if kindIs "map" .value }}
{{- range $key, $item := .value }}
{{- if not (and (eq $ask.at "jobTemplate.spec") (eq $key "workers")) }}
{{- include "embertide.checkPlaceholders" (dict "schedule" $ask.schedule "at" (printf "%s.%s" $ask.at $key) "value" $item) }}
{{- end }}
{{- end }}
{{- else if kindIs "slice" .value }}
{{- range $index, $item := .value }}
{{- include "embertide.checkPlaceholders" (dict "schedule" $ask.schedule "at" (printf "%s[%d]" $ask.at $index) "value" $item) }}
{{- end }}
{{- else if kindIs "string" .value }}
{{- $known := `\{\{|\}\}|\{(date|datetime)\s*([+-][0-9]+(h|d|w|mo))?\s*(:([^%{}]|%[YymdHMjGVuz])+)?\}` }}
{{- if regexMatch `[{}]` (regexReplaceAll $known .value "") }}
{{- fail (printf "schedules: %s: %s is %q, which has a brace or a placeholder that is not known; allowed: {date}, {datetime}, with an offset {date-1d} (h, d, w, mo), a format {date:%%Y/%%m/%%d}; a brace is written twice" .schedule .at .value) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* What values.schema.json cannot say, since it is about two values, or the release's name. */}}
{{- define "embertide.validate" -}}
{{- if le (float64 .Values.staleSeconds) (float64 .Values.resyncSeconds) }}
{{- fail (printf "staleSeconds (%v) must be more than resyncSeconds (%v): a healthy operator would be restarted" .Values.staleSeconds .Values.resyncSeconds) }}
{{- end }}
{{- with .Values.leaderElection }}
{{- if or (le (float64 .leaseDurationSeconds) (float64 .renewDeadlineSeconds)) (le (float64 .renewDeadlineSeconds) (float64 .retryPeriodSeconds)) }}
{{- fail (printf "leaderElection: leaseDurationSeconds (%v) must be more than renewDeadlineSeconds (%v), and that more than retryPeriodSeconds (%v)" .leaseDurationSeconds .renewDeadlineSeconds .retryPeriodSeconds) }}
{{- end }}
{{- end }}
{{- if not (regexMatch "^[a-z][-a-z0-9]*$" (include "embertide.fullname" .)) }}
{{- fail (printf "the name %q begins with a digit or has a dot, which a Service's may not: set fullnameOverride" (include "embertide.fullname" .)) }}
{{- end }}
{{- end }}

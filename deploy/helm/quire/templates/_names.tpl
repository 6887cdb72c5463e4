{{/* Name that all names begin with. */}}
{{- define "quire.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Labels that select the pods of a component: dict "root" . "component" NAME. */}}
{{- define "quire.selector" -}}
app.kubernetes.io/name: quire
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* All labels of a component. */}}
{{- define "quire.labels" -}}
{{ include "quire.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end -}}

{{/* Name of a component's service within the cluster. */}}
{{- define "quire.serviceName" -}}
{{ include "quire.fullname" .root }}-{{ .component }}.{{ .root.Release.Namespace }}.svc.{{ .root.Values.clusterDomain }}
{{- end -}}

{{- define "quire.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "quire.zookeeperImage" -}}
{{ .Values.zookeeper.image.repository }}:{{ .Values.zookeeper.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* Address of the metadata. The client's file in it is the same for each role; the certificate that it names is that of the pod. */}}
{{- define "quire.metadata" -}}
{{- $servers := .Values.metadata.servers -}}
{{- if .Values.zookeeper.enabled -}}
{{- $servers = list -}}
{{- $domain := include "quire.serviceName" (dict "root" . "component" "zookeeper") -}}
{{- range $number := untilStep 1 (int (add .Values.zookeeper.replicas 1)) 1 -}}
{{- $servers = append $servers (printf "%s-zookeeper-%d.%s:2181" (include "quire.fullname" $) $number $domain) -}}
{{- end -}}
{{- else if not $servers -}}
{{- fail "metadata.servers is empty and zookeeper.enabled is false: name the ZooKeeper servers, as host:port" -}}
{{- end -}}
zk://{{ join "," $servers }}{{ .Values.metadata.path }}?client=/etc/quire/client.toml
{{- end -}}

{{/* Name of a role's Secret with its certificate. */}}
{{- define "quire.tlsSecret" -}}
{{ get .root.Values.tls (printf "%sSecret" .role) | default (printf "%s-%s-tls" (include "quire.fullname" .root) .role) }}
{{- end -}}

{{/* Configuration of each kind of server. What differs between two pods of a kind is in their environment. */}}
{{- define "quire.zookeeperToml" -}}
{{- $servers := list }}
{{- $domain := include "quire.serviceName" (dict "root" . "component" "zookeeper") }}
{{- range $number := untilStep 1 (int (add .Values.zookeeper.replicas 1)) 1 }}
{{- $servers = append $servers (printf "%d=%s-zookeeper-%d.%s:2888:3888" $number (include "quire.fullname" $) $number $domain) }}
{{- end -}}
[zookeeper]
data_dir = "/var/lib/quire/zookeeper"
host = "0.0.0.0"
servers = {{ join " " $servers | quote }}
peers_on_all_addresses = true
allow_plaintext = true
heap_mb = {{ int .Values.zookeeper.heapMb }}
{{- end -}}

{{- define "quire.bookieToml" -}}
[bookie]
data_dir = "/var/lib/quire/bookie"
metadata = {{ include "quire.metadata" . | quote }}
host = "0.0.0.0"
port = 3181
admin_host = "0.0.0.0"
admin_port = 8080
tls = "required"
authorizer = "enforce"
super_users = {{ include "quire.superUsers" . | quote }}
repair = false
{{ include "quire.securityToml" . }}
{{- include "quire.optionsToml" .Values.bookie.options }}
{{- end -}}

{{- define "quire.brokerToml" -}}
[broker]
metadata = {{ include "quire.metadata" . | quote }}
{{- if .Values.broker.external.enabled }}
listeners = "INNER://0.0.0.0:9093,OUTER://0.0.0.0:9094"
listener_security_protocol_map = "INNER:SSL,OUTER:SSL"
{{- else }}
listeners = "INNER://0.0.0.0:9093"
listener_security_protocol_map = "INNER:SSL"
{{- end }}
inter_broker_listener = "INNER"
admin_host = "0.0.0.0"
admin_port = 8080
authorizer = true
super_users = {{ include "quire.superUsers" . | quote }}
{{ include "quire.securityToml" . }}
{{- include "quire.optionsToml" .Values.broker.options }}
{{- end -}}

{{- define "quire.consoleToml" -}}
[console]
metadata = {{ include "quire.metadata" . | quote }}
host = "0.0.0.0"
port = 8000
tls = "required"
super_users = {{ include "quire.superUsers" . | quote }}
{{ include "quire.securityToml" . }}
{{- include "quire.optionsToml" .Values.console.options }}
{{- end -}}

{{- define "quire.superUsers" -}}
{{ concat (list "User:broker" "User:console") .Values.tls.superUsers | join ";" }}
{{- end -}}

{{/* The principal of a certificate is its common name. */}}
{{- define "quire.securityToml" -}}
admin_token_file = "/etc/quire/admin/token"
tls_cert_file = "/etc/quire/tls/tls.crt"
tls_key_file = "/etc/quire/tls/tls.key"
tls_ca_file = "/etc/quire/tls/ca.crt"
tls_principal_rules = "RULE:^CN=([^,]+).*$/$1/"
{{- end -}}

{{/* The options of values as lines of TOML: texts have quotes, numbers and switches have none. */}}
{{- define "quire.optionsToml" -}}
{{- range $name, $value := . }}
{{ $name }} = {{ toJson $value }}
{{- end -}}
{{- end -}}

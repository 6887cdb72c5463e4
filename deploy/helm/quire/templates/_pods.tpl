{{/* What all pods have. Environment variables of Services would be taken for options of Quire: no service links. */}}
{{- define "quire.podSettings" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "quire.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* One topology constraint over zones, and one over nodes: dict "root" . "component" NAME "nodes" ACTION. */}}
{{- define "quire.spread" -}}
topologySpreadConstraints:
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "quire.selector" . | nindent 8 }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: {{ .nodes }}
    labelSelector:
      matchLabels:
        {{- include "quire.selector" . | nindent 8 }}
{{- end -}}

{{- define "quire.podName" -}}
- name: POD_NAME
  valueFrom: {fieldRef: {fieldPath: metadata.name}}
{{- end -}}

{{/* Files of a role as a client: client's file, certificate, token. The group of the pod may read a Secret's files. */}}
{{- define "quire.mounts" -}}
- {name: config, mountPath: /etc/quire/client.toml, subPath: client.toml, readOnly: true}
- {name: tls, mountPath: /etc/quire/tls, readOnly: true}
- {name: admin-token, mountPath: /etc/quire/admin, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- end -}}

{{- define "quire.volumes" -}}
- name: config
  configMap: {name: {{ include "quire.fullname" .root }}}
- name: tls
  secret:
    secretName: {{ include "quire.tlsSecret" . }}
    defaultMode: 0440
- name: admin-token
  secret:
    secretName: {{ .root.Values.adminTokenSecret }}
    defaultMode: 0440
- name: tmp
  emptyDir: {sizeLimit: 64Mi}
{{- end -}}

{{/* A request to the admin port. Kubernetes does not verify its certificate; the console answers only to names that it knows. */}}
{{- define "quire.httpGet" -}}
httpGet: {path: {{ .path }}, port: {{ .port }}, scheme: HTTPS, httpHeaders: [{name: Host, value: localhost}]}
{{- end -}}

{{- define "quire.probes" -}}
startupProbe:
  {{- include "quire.httpGet" (dict "path" "/livez" "port" .port) | nindent 2 }}
  periodSeconds: 5
  failureThreshold: 120
livenessProbe:
  {{- include "quire.httpGet" (dict "path" "/livez" "port" .port) | nindent 2 }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  {{- include "quire.httpGet" (dict "path" "/readyz" "port" .port) | nindent 2 }}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end -}}

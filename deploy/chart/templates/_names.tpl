{{- /* What the objects are called: the release, which is no object of the server's by the same name. */ -}}
{{- define "vllm-doctor.name" -}}
{{- .Release.Name | contains .Chart.Name | ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- /* Name and labels of an object; of a dict: root, labels, annotations, and what stands around the name. */ -}}
{{- define "vllm-doctor.metadata" -}}
name: {{ with .before }}{{ . }}-{{ end }}{{ include "vllm-doctor.name" .root }}{{ with .behind }}-{{ . }}{{ end }}
labels:
  app.kubernetes.io/name: {{ .root.Chart.Name }}
  app.kubernetes.io/instance: {{ .root.Release.Name }}
  app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .labels }}
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* A file of alerts/ as it is: its own {{ $labels }} are Prometheus' and no template of Helm's. */ -}}
{{- define "vllm-doctor.written" -}}
{{- .root.Files.Get (printf "alerts/%s" .file) | required (printf "alerts/%s is missing: vllm-doctor alerts -o alerts" .file) -}}
{{- end -}}

"""The API of a Kubernetes cluster: its pods, their logs, their /metrics by its proxy. It is read, nothing is changed.

In: a word k8s://namespace/deployment. Out: what each pod is, and the way to its server (docs/kubernetes.md).
"""

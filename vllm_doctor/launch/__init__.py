"""Commands as people write them (shell, docker, compose, Kubernetes, systemd, --config): read into flags and faults,
and written again with a correction. Nothing is executed.
"""

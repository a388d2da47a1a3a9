"""The rules as files for Prometheus, Loki and Grafana: rules and signals in, texts out."""

"""Many engines at once: a survey of a Prometheus in, a ranked fleet out."""

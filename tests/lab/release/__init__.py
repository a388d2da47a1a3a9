"""A vLLM release becomes rows of the data: `python -m tests.lab.release add 0.34.0`. The recipe: docs/releases.md."""

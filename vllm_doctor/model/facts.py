"""The names that sources and signals agree on: what is known of a server beside its scrapes."""

ENGINE_METRIC = "vllm:num_requests_running"
"""One series of it is one engine; its labels name the engine."""

COMMAND, ENVIRONMENT = "command", "environment"
"""Facts that say whether a server's command line and environment were read; a variable X is the fact "$X"."""

FORM = "command_form"
"""The fact that a command was given as a text, and how it was written."""

LOG = "log"
"""The fact that says whether a log was read; how often line x stands in it is "log:x", and its value y "log:x.y"."""

SAID = "as the user says"
"""The tool of a benchmark of which a person told the figure only."""

BENCH = "bench_given"
"""The fact that a benchmark's result was given; what it tells is in facts named bench_*."""

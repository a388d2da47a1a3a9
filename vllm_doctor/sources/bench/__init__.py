"""Benchmark results: a file that a load generator saved, or the table that it printed, becomes an Observation.

One module a tool, all of which give `BenchRun`s (run.py): what was asked for, what was measured, in seconds and tokens.
`documents.py` knows which tool a file is of, `printed.py` finds printed tables within other text, `facts.py` makes the
facts (`bench_*`) that rules read, `corrected.py` the command with which to measure again.
"""

"""Where the processes of a server spend their time, by the stacks that py-spy samples from outside.

In: a server's processes (sources/host/process.py). Out: an Observation with a Profile and its facts. `py_spy.py` runs
the sampler, `stacks.py` reads what it wrote, `rights.py` says why it may not look, `profiler.py` does all processes at
once, `facts.py` gives what signals read. Nothing of the server is changed, and no argument or local is read.
"""

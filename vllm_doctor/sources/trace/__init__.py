"""A profiler's trace: which kernels ran on the device, when, and what launched them.

`chrome` reads what torch's profiler writes (and so vLLM's), `nsys` what `nsys export --type sqlite` does; both fill an
`Events`. `steps` splits the device's time by step, `operators` that of a trace without a device, `ranks` compares the
files of several ranks. `source` makes an Observation of them.
"""

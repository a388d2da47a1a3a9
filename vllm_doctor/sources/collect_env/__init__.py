"""What `vllm collect-env` prints (before: collect_env.py, PyTorch's or vLLM's), in any of its forms since 2023.

In: its text, as people paste it into an issue. Out: an Observation of the machine, and of the vLLM that is installed on
it. `document.holds` tells such a text, `source.examine` reads it.
"""

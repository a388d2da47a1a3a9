"""What vLLM is: its flags, metrics and defaults by release, its command line, what a model keeps in the KV cache, what
a GPU can do. Versions, arguments and a model's config.json in; facts out. The data of every release is in data/.
"""

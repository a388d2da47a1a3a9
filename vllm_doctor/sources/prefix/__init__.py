"""Prompts as a server's requests have them, for where they part: from the events of its KV cache, or from its log.

In: an endpoint of ZMQ, or a log's files. Out: `Prefixes` (model/prefix.py), positions and counts. A token or a
character becomes a number of this run as soon as it is read; no text is kept unless it was asked for.
"""

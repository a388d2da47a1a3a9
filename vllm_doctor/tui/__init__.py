"""The doctor at a terminal. It knows pictures (watch.py) and how to ask for them; no rule and no source."""

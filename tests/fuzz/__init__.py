"""Hostile bytes for everything that reads bytes, and what must hold for each of them (run.py, harnesses.py)."""

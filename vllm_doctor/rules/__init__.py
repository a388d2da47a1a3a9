"""Signals, rules and log lines, read from YAML and checked; and the judgement: observations of a moment or of a time
in, findings out. Pure but for the reading of the files.
"""

"""A module for each command, whose `run` gives the exit code; and what these share.

Imports stand at the top where every run needs them, and late where only some do. The command line imports the command
that was asked for and no other.
"""

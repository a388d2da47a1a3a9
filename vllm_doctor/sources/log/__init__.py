"""A log, from bytes to runs. The stages, in the order of the names:

bytes_*   unpacked, streamed or followed as they grow, scanned for the literals that matter
entry*    a line without its wrapper, with its time, what follows it, its arguments; and without secrets
reader    each entry that the table of log lines knows, with its values
runs      the entries as runs of servers, from start to end
source    all of it, as a source
"""

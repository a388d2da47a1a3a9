"""What everybody speaks: readings, snapshots, windows of scrapes, observations, the report, errors. Frozen data and
pure functions; nothing comes in but values. It knows no other package.
"""

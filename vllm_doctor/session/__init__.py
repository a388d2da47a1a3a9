"""An examination: attach to what the user names, observe it, judge it, once or again and again, or capture it. Targets
in; reports, view models and bundles out. The only place where time passes.
"""

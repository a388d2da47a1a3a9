"""The doctor at a terminal: view models in (session/view_model.py), screens out. It knows no rule and no source."""

"""The language of conditions and formulas, and the subset of PromQL: text in; values, truths or queries out. Pure."""

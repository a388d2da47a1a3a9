"""Before and after: two examinations or benchmark results in, a verdict with figures and their spread out."""

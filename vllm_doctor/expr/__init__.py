"""The language of conditions and formulas: parsed once into nodes, which scalar, columns and promql give a meaning; and
promql_eval, our subset of PromQL over a Window. Texts come in; readings, truths and PromQL go out. Pure."""

"""vllm-doctor: what limits a vLLM server, on what evidence, and what cures it.

Data flow, and the module of each step:

    source      sources/*        a server is scraped
    signals     catalogue.py     the scrapes become named, typed values
    verdicts    diagnose.py      the rules of rules/ judge them
    report      report.py        frozen: findings, unknowns, vitals
    output      render/*         text, JSON, Nagios, Checkmk, OpenMetrics
"""

__version__ = "0.1.0"

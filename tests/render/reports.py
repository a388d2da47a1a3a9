"""Reports to render: of recorded servers, and of none."""

from __future__ import annotations

from datetime import UTC, datetime

from vllm_doctor.report import Patient, Problem, Report, SourceSeen, Verdict

AT = datetime(2026, 11, 20, 10, 15, tzinfo=UTC)


def unreachable() -> Report:
    """Nobody answered."""
    problem = Problem("unreachable", "http://127.0.0.1:1 refuses connections: is the server up, and is this its port?")
    source = SourceSeen("server", "http://127.0.0.1:1", 0.0, 0, problem)
    nobody = Patient(None, None, None)
    return Report(AT, Verdict.UNKNOWN, problem.message, nobody, (source,), (), (), (), (), (), {}, problem)

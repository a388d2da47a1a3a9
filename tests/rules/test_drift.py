"""The rule drift-with-uptime: the same load, early and late in a log of hours, in a recording, in a Prometheus."""

from __future__ import annotations

import pytest

from tests.making import shipped_catalogue, shipped_rules
from vllm_doctor.model.facts import LOG
from vllm_doctor.model.kinds import Severity
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.run import KV_CACHE, PROMPTS, RUNNING, WAITING, Round, Run, Series
from vllm_doctor.rules import postmortem

TOKENS: Series = ("vllm:generation_tokens_total", ())


def severity(*per_token: float, drafted: float = 0.0) -> Severity | None:
    """Of a log in which eight requests decode for a minute each hour, with so many seconds between two tokens."""
    rounds = []
    tokens = 0.0
    for hour, seconds in enumerate(per_token):
        for place in range(7):
            tokens += 80 / seconds
            values = {RUNNING: 8.0, WAITING: 0.0, KV_CACHE: 0.2, PROMPTS: 0.0, TOKENS: tokens}
            rounds.append(Round(1e9 + 3600 * hour + 10 * place, {"0": values}))
    told: dict[str, Reading] = {LOG: Known(True), "log:spec-decoding": Known(drafted)}
    run = Run(rounds[0].at, rounds[-1].at, False, True, False, None, told, tuple(rounds))
    run = Run(rounds[0].at, rounds[-1].at, False, True, False, None, {**told, **run.decode_drift}, tuple(rounds))
    wished: dict[str, Reading] = {"goal": Known("throughput")}
    found = postmortem.examine([run], shipped_rules(), shipped_catalogue(), wished).diagnosis.findings
    return next((one.severity for one in found if one.rule == "drift-with-uptime"), None)


@pytest.mark.parametrize(
    ("per_token", "said"),
    [
        ((0.020, 0.024, 0.028, 0.032, 0.036, 0.040), Severity.WARNING),
        ((0.020, 0.021, 0.022, 0.024, 0.025, 0.026), Severity.INFO),
        ((0.020, 0.020, 0.020, 0.020, 0.020, 0.020), None),
        ((0.040, 0.036, 0.032, 0.028, 0.024, 0.020), None),  # it gets faster
        ((0.020, 0.060, 0.060, 0.060, 0.030, 0.030), None),  # slowest in the middle: no drift
        ((0.020, 0.040, 0.020, 0.040, 0.020, 0.040), None),  # up and down
        ((0.020, 0.020, 0.020, 0.040, 0.040, 0.040), None),  # a step
        ((0.020, 0.020, 0.040, 0.040, 0.040, 0.040), None),
    ],
)
def test_a_load_that_gets_slower_from_third_to_third_drifts(
    per_token: tuple[float, ...], said: Severity | None
) -> None:
    assert severity(*per_token) is said


def test_what_drafts_bring_is_no_drift() -> None:
    assert severity(0.020, 0.024, 0.028, 0.032, 0.036, 0.040, drafted=12) is None

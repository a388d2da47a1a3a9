"""rules/signals/gain.yaml: no gain promises more than the GPUs can do."""

from __future__ import annotations

import pytest

from tests.making import shipped_catalogue, shipped_rules
from tests.rules.test_costs import facts, known, server, value


@pytest.mark.parametrize("name", ["kv_batch_gain", "kv_pool_gain"])
@pytest.mark.parametrize("tpot", [0.006, 0.008, 0.02, 0.1])
def test_it_is_not_more_than_all_requests_get_at_the_bound_of_the_gpus(name: str, tpot: float) -> None:
    seen = server(facts(), running=8, waiting=24, tpot=tpot, preempted=40)
    most = known(seen, "batch_growth") * tpot / known(seen, "tpot_bound")  # a larger batch takes no less time
    assert 1 < known(seen, name) <= most
    assert known(seen, "gain_limit") <= most


def test_it_is_not_limited_where_the_gpus_are_not_known() -> None:
    seen = server({}, running=8, waiting=24, preempted=40)
    assert known(seen, "kv_batch_gain") == pytest.approx(4 * known(seen, "recompute_factor"))


def limit_of(gain: str) -> str | None:
    speed = shipped_catalogue().speed
    assert speed is not None
    limit = speed.limit_of(gain)
    return limit.signal if limit is not None else None


def test_every_limit_is_of_a_gain_that_a_rule_has() -> None:
    speed = shipped_catalogue().speed
    assert speed is not None
    rules = shipped_rules()
    used = {bound[0] for rule in rules for bound in (rule.gain, *(r.gain for r in rule.remedies)) if bound is not None}
    assert {gain for limit in speed.limits for gain in limit.gains} <= used


@pytest.mark.parametrize("tpot", [0.006, 0.02, 0.1])
@pytest.mark.parametrize("waiting", [0, 24])
def test_a_limit_leaves_no_more_than_is_there(tpot: float, waiting: int) -> None:
    """Shorter steps leave the batch; a queue that is let in raises it; more than all of the house nobody lets in."""
    seen = server(facts(), running=8, waiting=waiting, tpot=tpot)
    steps, house, whole = (
        known(seen, limit_of(name) or "") for name in ("draft_gain", "throttled_gain", "profile_http_gain")
    )
    assert steps == pytest.approx(tpot / known(seen, "tpot_bound"))
    assert steps <= house <= whole
    if not waiting:
        assert house == pytest.approx(steps)


@pytest.mark.parametrize("name", ["draft_gain", "throttled_gain", "profile_http_gain", "batch_gain"])
def test_a_limit_is_not_known_without_gpu_or_of_a_server_that_is_faster(name: str) -> None:
    signal = limit_of(name)
    assert signal is not None
    assert value(server({}), signal) is None
    assert value(server(facts(), tpot=0.0001), signal) is None


@pytest.mark.parametrize("name", ["spread_gain", "gateway_gain", "transfer_gain"])
def test_no_engine_limits_what_is_spread_over_several(name: str) -> None:
    assert limit_of(name) is None

"""rules/signals/gain.yaml: no gain promises more than the GPUs can do."""

from __future__ import annotations

import pytest

from tests.rules.test_costs import facts, known, server


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

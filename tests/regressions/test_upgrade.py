"""What a release has, what an upgrade brings, and the order of trying."""

from __future__ import annotations

import pytest

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.regressions import upgrade
from vllm_doctor.rules import rule_set
from vllm_doctor.vllm import flags

FAULTS = rule_set.load([]).faults
GPT_OSS_ON_HOPPER: dict[str, float | str] = {"model_type": "gpt_oss", "gpu_capability": 9.0}


def of(known: dict[str, float | str]) -> upgrade.Read:
    def read(name: str) -> Reading:
        return Known(known[name], origin="") if name in known else upgrade.unknown(name)

    return read


def _ids(found: tuple[upgrade.Listed, ...], held: str) -> set[str]:
    return {one.fault.id for one in found if one.held == held}


def test_an_upgrade_brings_what_began_between() -> None:
    found = upgrade.upgrade(FAULTS, "0.16.0", "0.18.0", of(GPT_OSS_ON_HOPPER))
    assert "gpt-oss-hopper-0.17" in _ids(found.brings, "certain")
    kept = upgrade.upgrade(FAULTS, "0.17.0", "0.18.0", of(GPT_OSS_ON_HOPPER))
    assert "gpt-oss-hopper-0.17" in _ids(kept.keeps, "certain")


def test_what_is_not_told_is_possible_and_what_is_otherwise_is_left_out() -> None:
    assert "gpt-oss-hopper-0.17" in _ids(upgrade.listing(FAULTS, "0.17.0"), "possible")
    other = of({**GPT_OSS_ON_HOPPER, "gpu_capability": 8.0})
    assert "gpt-oss-hopper-0.17" not in {one.fault.id for one in upgrade.listing(FAULTS, "0.17.0", other)}


def test_every_fault_with_an_end_is_fixed_by_the_upgrade_to_it() -> None:
    for fault in FAULTS:
        if fault.until:
            found = upgrade.upgrade([fault], fault.since, fault.until)
            assert _ids(found.fixes, "possible") == {fault.id}
            assert upgrade.listing([fault], fault.until) == ()


def test_of_a_release_that_nobody_looked_at_nothing_is_listed() -> None:
    open_ = [fault for fault in FAULTS if not fault.until and fault.seen != flags.newest()]
    assert open_
    assert upgrade.listing(open_, flags.newest()) == ()


def test_releases_are_halved() -> None:
    order = upgrade.bisection("0.16.0", "0.20.0")
    every = list(flags.releases())
    between = every[every.index("0.16.0") + 1 : every.index("0.20.0")]
    assert sorted(order) == sorted(between)
    assert order[0] == between[len(between) // 2]
    assert upgrade.most_steps(len(order)) == 3
    assert upgrade.bisection(every[0], every[1]) == []


def test_an_upgrade_goes_forward() -> None:
    with pytest.raises(UsageError, match="does not come after"):
        upgrade.upgrade(FAULTS, "0.20.0", "0.19.0")
    with pytest.raises(UsageError, match="no release"):
        upgrade.release("9.9")
    assert upgrade.release("v0.19.0") == "0.19.0"

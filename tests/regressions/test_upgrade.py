"""What a release has, what an upgrade brings, and the order of trying."""

from __future__ import annotations

import pytest

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.regressions import upgrade
from vllm_doctor.rules import rule_set
from vllm_doctor.vllm import flags

FAULTS, IMPROVEMENTS = rule_set.load([]).faults, rule_set.load([]).improvements
DEEPSEEK: dict[str, float | str] = {"model_type": "deepseek_v3", "weights_kind": "fp8", "gpu_capability": 9.0}
NVFP4_ON_B300: dict[str, float | str] = {"weights_kind": "modelopt_fp4", "gpu_capability": 10.3}


def of(known: dict[str, float | str]) -> upgrade.Read:
    def read(name: str) -> Reading:
        return Known(known[name], origin="") if name in known else upgrade.unknown(name)

    return read


def _ids(found: tuple[upgrade.Listed, ...], held: str) -> set[str]:
    return {one.fault.id for one in found if one.held == held}


def test_an_upgrade_brings_what_began_between() -> None:
    found = upgrade.upgrade(FAULTS, "0.21.0", "0.23.0", of(NVFP4_ON_B300))
    assert "nvfp4-b300-0.22" in _ids(found.brings, "certain")
    kept = upgrade.upgrade(FAULTS, "0.22.0", "0.23.0", of(NVFP4_ON_B300))
    assert "nvfp4-b300-0.22" in _ids(kept.keeps, "certain")
    assert "nvfp4-b300-0.22" in _ids(upgrade.of_builds(found).brings, "possible")


def test_what_is_not_told_is_possible_and_what_is_otherwise_is_left_out() -> None:
    assert "nvfp4-b300-0.22" in _ids(upgrade.listing(FAULTS, "0.22.0"), "possible")
    (part,) = (
        one
        for one in upgrade.listing(FAULTS, "0.22.0", of({"weights_kind": "nvfp4"}))
        if one.fault.id == "nvfp4-b300-0.22"
    )
    assert (part.held, part.unknown) == ("possible", ("gpu_capability",))
    other = of({**NVFP4_ON_B300, "gpu_capability": 8.0})
    assert "nvfp4-b300-0.22" not in {one.fault.id for one in upgrade.listing(FAULTS, "0.22.0", other)}


def test_a_setup_of_which_nothing_is_known_has_none() -> None:
    assert upgrade.listing(FAULTS, "0.22.0", upgrade.unknown) == ()


def test_what_is_certain_and_first_of_what_is_possible_is_quoted() -> None:
    found = upgrade.upgrade(FAULTS, "0.21.0", "0.23.0", of(NVFP4_ON_B300))
    assert any(line.startswith("0.21.0 to 0.23.0 brings: NVFP4 decodes slowly") for line in upgrade.lines(found))
    found = upgrade.upgrade(FAULTS, "0.16.0", "0.18.0", of({"model_type": "gpt_oss", "gpu_capability": 9.0}))
    assert any("possibly brings: gpt-oss is slower on Hopper" in line for line in upgrade.lines(found))


def test_every_fault_with_an_end_is_fixed_by_the_upgrade_to_it() -> None:
    for fault in FAULTS:
        if fault.until:
            found = upgrade.upgrade([fault], fault.since, fault.until)
            assert _ids(found.fixes, "possible") == {fault.id}
            assert upgrade.listing([fault], fault.until) == ()


def test_an_upgrade_gains_what_came_between_and_lacks_what_came_later() -> None:
    found = upgrade.upgrade(IMPROVEMENTS, "0.6.6", "0.7.3", of(DEEPSEEK))
    assert _ids(found.gains, "certain") == {"mla-0.7.1", "deepseek-mtp-0.7.3"}
    assert _ids(found.lacks, "certain") == set()  # of FlashMLA only 0.7.1 and later speak
    assert "mla-0.7.1" in _ids(upgrade.upgrade(IMPROVEMENTS, "0.6.6", "0.7.0", of(DEEPSEEK)).lacks, "certain")
    assert "flashmla-0.8.0" in _ids(upgrade.upgrade(IMPROVEMENTS, "0.7.3", "0.8.0", of(DEEPSEEK)).gains, "certain")
    assert [found.brings, found.keeps, found.passes, found.fixes] == [(), (), (), ()]
    assert "mla-0.7.1" in _ids(upgrade.of_builds(found).gains, "possible")
    assert any(
        line.startswith("0.6.6 to 0.7.3 ends: DeepSeek-V3 and R1 run without MLA") for line in upgrade.lines(found)
    )


def test_every_improvement_is_gained_by_the_upgrade_to_it() -> None:
    for entry in IMPROVEMENTS:
        assert entry.until
        found = upgrade.upgrade([entry], entry.since, entry.until)
        assert _ids(found.gains, "possible") == {entry.id}
        assert upgrade.listing([entry], entry.until) == ()
        assert len(upgrade.listing([entry], entry.since)) == 1


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
    assert upgrade.bisection("0.6.6", "0.7.1") == ["0.6.6.post1"]  # of the older ones only these are known


def test_an_upgrade_goes_forward() -> None:
    with pytest.raises(UsageError, match="does not come after"):
        upgrade.upgrade(FAULTS, "0.20.0", "0.19.0")
    with pytest.raises(UsageError, match="no release"):
        upgrade.release("nightly")
    with pytest.raises(UsageError, match="newer than all"):
        upgrade.release("99.0.0")


@pytest.mark.parametrize(
    ("written", "release", "is_release"),
    [
        ("v0.19.0", "0.19.0", True),
        ("0.19", "0.19.0", True),
        ("0.26.0+cpu", "0.26.0", True),
        ("v0.7.1", "0.7.1", True),  # of the releases before 0.8.0 only samples are known: each is taken by its number
        ("0.6.6", "0.6.6", True),
        ("0.20.1rc1.dev5+gabc", "0.20.1", False),
    ],
)
def test_as_people_write_a_version(written: str, release: str, is_release: bool) -> None:
    assert upgrade.is_version(written)
    assert upgrade.release(written) == release
    assert upgrade.is_release(written) is is_release
    assert not upgrade.is_version("server-0.19.log")

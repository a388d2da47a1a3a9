from __future__ import annotations

import pytest

from vllm_doctor.vllm import dating, flags
from vllm_doctor.vllm.dating import Dating, dated


def of(*names: str, values: dict[str, str] | None = None, environment: tuple[str, ...] = ()) -> Dating:
    return dated(dating.of_flags(names), [*dating.of_values(values or {}), *dating.of_environment(environment)])


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([], ""),
        (["--max-num-seqs"], ""),
        (["--no-such-flag"], ""),
        (["--swap-space"], "up to 0.17.1, by --swap-space"),
        (["--moe-backend"], "0.17.0 or later, by --moe-backend"),
        (["--moe-backend", "--swap-space"], "0.17.0 to 0.17.1, by --moe-backend and --swap-space"),
        (
            ["--enable-reasoning", "--cuda-graph-sizes"],
            "0.9.0 to 0.9.2, by --cuda-graph-sizes and --enable-reasoning",
        ),
        (["--enable-mamba-fine-grained-prefix-cache"], "0.30.0, by --enable-mamba-fine-grained-prefix-cache"),
        (["--max_seq_len_to_capture"], "up to 0.10.2, by --max_seq_len_to_capture"),
        (["--no-enable-log-requests"], "0.10.1 or later, by --no-enable-log-requests"),
        (["--attention-config.backend"], "0.13.0 or later, by --attention-config.backend"),
        (["--compilation-config.mode"], "0.9.0 or later, by --compilation-config.mode"),
        (["--no-such-flag.key"], ""),
        (["--model", "-O3", "-O"], ""),
    ],
)
def test_the_releases_that_have_all_flags(names: list[str], says: str) -> None:
    assert of(*names).says == says


@pytest.mark.parametrize(
    ("names", "says"),
    [
        pytest.param(
            ["--enable-reasoning"], "after 0.6.6.post1, up to 0.9.2, by --enable-reasoning", id="came between"
        ),
        pytest.param(["--worker-use-ray"], "before 0.7.3, by --worker-use-ray", id="went between"),
        pytest.param(
            ["--worker-use-ray", "--num-scheduler-steps"],
            "after 0.4.3, before 0.7.3, by --num-scheduler-steps and --worker-use-ray",
            id="both",
        ),
        pytest.param(["--num-scheduler-steps"], "after 0.4.3, up to 0.10.0, by --num-scheduler-steps", id="0.5.5"),
    ],
)
def test_before_0_8_not_every_release_is_known(names: list[str], says: str) -> None:
    assert of(*names).says == says


def test_a_flag_that_went_and_came_again() -> None:
    found = of("--disable-log-requests")
    assert found.says == "up to 0.16.0, or 0.33.0 or later, by --disable-log-requests"
    assert found.newest == flags.newest()
    assert of("--disable-log-requests", "--swap-space").says.startswith("up to 0.16.0, by --disable-log-requests")


def test_a_short_spelling_may_be_older_than_its_first_known_release() -> None:
    assert of("-tp").says == ""
    assert of("-cc").says.startswith(("0.13.0 or later", "0.12.0 or later"))


def test_a_value_dates_where_a_flag_takes_one_of_a_list() -> None:
    assert of(values={"--all2all-backend": "deepep_v2"}).says == "0.24.0 or later, by --all2all-backend deepep_v2"
    assert of(values={"--all2all-backend": "of_a_plugin"}).says == ""
    assert of(values={"--all2all-backend": "naive"}).newest == flags.newest()
    assert of("--moe-backend", values={"--moe-backend": "marlin"}).says == "0.17.0 or later, by --moe-backend"


def test_a_variable_dates_by_when_it_came_only() -> None:
    assert of(environment=("VLLM_ALL2ALL_BACKEND",)).says == "0.9.0 or later, by VLLM_ALL2ALL_BACKEND"
    assert of(environment=("VLLM_USE_V1", "HOME", "VLLM_NO_SUCH")).says == ""


def test_a_hint_that_leaves_nothing_is_not_taken() -> None:
    found = of("--swap-space", values={"--all2all-backend": "deepep_v2"})
    assert (found.says, found.contradiction) == ("up to 0.17.1, by --swap-space", "")


def test_flags_that_contradict_each_other() -> None:
    found = of("--swap-space", "--max-num-seqs", "--watermark")
    assert found.contradiction == "--swap-space was gone in 0.18.0, --watermark came in 0.24.0"
    assert found.says == ""
    assert found.newest == flags.newest()


def test_where_they_contradict_each_other_the_most_count() -> None:
    found = of("--swap-space", "--rope-scaling", "--watermark")
    assert found.newest == "0.11.0"
    assert found.contradiction == "--rope-scaling was gone in 0.11.1, --watermark came in 0.24.0"


def test_flags_of_the_oldest_releases_that_contradict_each_other() -> None:
    found = of("--worker-use-ray", "--enable-expert-parallel")
    assert found.contradiction == "--worker-use-ray was gone by 0.7.3, --enable-expert-parallel came in 0.8.0"


def test_three_that_fit_two_by_two() -> None:
    releases = range(len(flags.releases()))
    without = {"a": range(20), "b": range(20, 40), "c": range(40, len(releases))}
    clues = [dating.Clue(says, frozenset(releases) - frozenset(out)) for says, out in without.items()]
    assert dated(clues).contradiction == "no release has all of a, b and c"


def test_what_stood_from_a_release_to_a_release() -> None:
    assert dated([dating.between("a line", (0, 10, 1), (0, 11, 0))]).releases == (
        "0.10.1",
        "0.10.1.1",
        "0.10.2",
        "0.11.0",
    )
    assert dated([dating.between("a line", None, None)]).says == ""

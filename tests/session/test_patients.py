"""What the observations of one server add up to."""

from __future__ import annotations

import pytest

from vllm_doctor.launch.source import facts, read
from vllm_doctor.model.facts import COMMAND, ENVIRONMENT
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.run import Run
from vllm_doctor.session.patients import Examined, with_what_else_is_known


def written(facts: dict[str, Reading]) -> Observation:
    return Observation(SourceKind.COMMAND, "--command", facts=facts, patient="s", command=("vllm", "serve", "other"))


GIVEN: dict[str, Reading] = {
    COMMAND: Known(True),
    ENVIRONMENT: Known(True),
    "--enforce-eager": Known(True),
    "$NCCL_P2P_DISABLE": Known(1.0),
    "vllm_version": Known("0.11.0"),
}


def flags_of(*others: Observation) -> dict[str, object]:
    facts = Examined((*others, written(GIVEN))).facts()
    return {name: fact.value for name, fact in facts.items() if isinstance(fact, Known)}


def test_a_written_command_says_nothing_where_the_own_one_was_read() -> None:
    own = Observation(SourceKind.HOST, "pid 1", facts={COMMAND: Known(True), "--max-num-seqs": Known(8.0)}, patient="s")
    assert flags_of(own) == {
        COMMAND: True,
        "--max-num-seqs": 8.0,
        ENVIRONMENT: True,
        "$NCCL_P2P_DISABLE": 1.0,
        "vllm_version": "0.11.0",
    }


@pytest.mark.parametrize("kind", ["host", "log", "server"])
def test_a_written_command_completes_what_could_not_be_read(kind: str) -> None:
    facts: dict[str, Reading] = {
        "vllm_version": Known("0.32.0"), ENVIRONMENT: Unknown(Reason.DENIED), "--max-num-seqs": Known(8.0),
    }  # fmt: skip
    own = Observation(SourceKind(kind), "s", facts=facts, patient="s")
    assert flags_of(own) == {
        **{name: fact.value for name, fact in GIVEN.items() if isinstance(fact, Known)},
        "vllm_version": "0.32.0",
        "--max-num-seqs": 8.0,
    }


def test_a_command_is_judged_by_the_version_that_another_source_tells() -> None:
    [start] = read("vllm serve m --enable-reasoning --watermark 0.1 --disable-log-requests")
    alone = Examined((written(facts(start)),)).facts()
    assert {"flags_contradiction_says", "flags_window"} <= alone.keys()
    ran = Observation(SourceKind.LOG, "log", facts={"vllm_version": Known("0.9.2")}, patient="s")
    told = {
        name: fact.value
        for name, fact in Examined((ran, written(facts(start)))).facts().items()
        if isinstance(fact, Known)
    }
    assert (told["flags_judged_as"], told["flags_unknown_names"], told["flags_of_release"]) == (
        "0.9.2",
        "--watermark",
        0.0,
    )
    assert not {"flags_contradiction_says", "flags_window", "flags_window_says"} & told.keys()


def test_a_command_beside_a_log_is_judged_by_the_version_of_the_log() -> None:
    [start] = read("vllm serve m --model-max-len 16384 --watermark 0.1")
    ran = Run(0.0, 1.0, True, True, False, None, {"vllm_version": Known("0.9.2")})
    [run] = with_what_else_is_known([ran], [written(facts(start))])
    assert run.facts["flags_judged_as"] == Known("0.9.2", origin="cmdline")
    assert run.facts["flags_unknown_names"] == Known("--model-max-len --watermark", origin="cmdline")


def test_the_version_of_the_commands_own_image_stays() -> None:
    [start] = read("docker run vllm/vllm-openai:v0.18.0 m --swap-space 4")
    told = Examined((written(facts(start)),)).facts()
    assert told["flags_of_release"] == Known(1.0, origin="cmdline")
    assert told["flags_checked_by"] == Known("0.18.0", origin="cmdline")


def test_the_last_run_of_a_log_is_that_of_the_processes_that_are_there() -> None:
    runs = [Run(0.0, 1.0, True, True, False, None, {}), Run(2.0, 3.0, True, False, False, None, {})]
    host = Observation(
        SourceKind.HOST, "pid 7", facts={"process_id": Known(7.0)}, patient="s", processes=(("api-server", 7),)
    )
    first, last = with_what_else_is_known(runs, [host])
    assert "process_id" not in first.facts
    assert last.facts["process_id"] == Known(7.0)
    assert all("process_id" not in run.facts for run in with_what_else_is_known(runs, []))

"""What a written command will give, before it is started. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from vllm_doctor.model.expectation import Expectation, Load
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.rules import expectation
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.session.patients import Examined


def under_a_load(wished: Mapping[str, Reading]) -> dict[str, Reading]:
    """The user's facts, and where they tell no load, one request: what its causes cost is then known of a command."""
    assumed = {name: Known(value, origin="assumed") for name, value in expectation.facts(expectation.ALONE).items()}
    return {**assumed, **wished}


def expected(patient: Examined, snapshot: Snapshot, catalogue: Catalogue, wishes: Mapping[str, Value]) -> Expectation:
    """Of a patient that is a command alone, with the GPUs for it; `snapshot`: all of its signals.

    `wishes`: they may tell the load (facts load_*).
    """
    read = catalogue.narrowed(expectation.SIGNALS)

    def at(load: Load) -> Snapshot:
        wished: dict[str, Reading] = {
            name: Known(value, origin="user") for name, value in {**wishes, **expectation.facts(load)}.items()
        }
        return patient.snapshot(read, wished, is_tagged=False)

    refused = expectation.refusal(snapshot, catalogue)
    return expectation.expected(at, expectation.load_of(wishes), refused)

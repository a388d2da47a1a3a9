from __future__ import annotations

import json

import pytest

from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm.nested_flags import of_facts, of_text, rewritten

SPEC, COMPILE = "--speculative-config", "--compilation-config"


@pytest.mark.parametrize(
    ("flag", "text", "found"),
    [
        (SPEC, '{"method": "mtp", "num_speculative_tokens": 2}', {"method": "mtp", "num_speculative_tokens": 2.0}),
        (SPEC, '{... "num_speculative_tokens": 3}', {"num_speculative_tokens": 3.0}),
        (SPEC, "{'method': 'eagle3', 'model': 'x", {"method": "eagle3"}),
        (SPEC, '{"method": null}', {}),
        (COMPILE, "{'cudagraph_mode': <CUDAGraphMode.PIECEWISE: 1>}", {"cudagraph_mode": "PIECEWISE"}),
        (COMPILE, '{"cudagraph_mode": "full"}', {"cudagraph_mode": "FULL"}),
        (COMPILE, '{"cudagraph_capture_sizes": [1, 2,4]}', {"cudagraph_capture_sizes": "1 2 4"}),
        (COMPILE, '{"max_cudagraph_capture_size": 16}', {"max_cudagraph_capture_size": 16.0}),
        ("--limit-mm-per-prompt", "image=0,video=1", {"image": 0.0, "video": 1.0}),
        ("--hf-overrides", '{"method": "mtp"}', {}),
        (SPEC, "", {}),
    ],
)
def test_what_stands_within(flag: str, text: str, found: dict[str, object]) -> None:
    assert of_text(flag, text) == {f"{flag}.{key}": value for key, value in found.items()}


def test_what_is_given_by_its_own_name_counts() -> None:
    given: dict[str, Reading] = {
        SPEC: Known('{"method": "mtp", "num_speculative_tokens": 2}'),
        f"{SPEC}.num_speculative_tokens": Known(5.0),
    }
    assert of_facts(given) == {f"{SPEC}.method": Known("mtp")}


def test_the_mode_of_the_graphs_in_any_case() -> None:
    flag = f"{COMPILE}.cudagraph_mode"
    assert of_facts({flag: Known("piecewise")}) == {flag: Known("PIECEWISE")}
    assert of_facts({flag: Known("NONE")}) == {}


def test_a_value_that_is_not_in_the_text_hides_its_keys() -> None:
    unknown = Unknown(Reason.NOT_IN_COMMAND)
    assert of_facts({SPEC: unknown}) == {f"{SPEC}.method": unknown, f"{SPEC}.num_speculative_tokens": unknown}


@pytest.mark.parametrize(
    ("flag", "value", "largest"),
    [
        ("--max-cudagraph-capture-size", 6.0, 4.0),
        ("--max-cudagraph-capture-size", 1.0, 1.0),
        ("--max-cudagraph-capture-size", 30.0, 24.0),
        ("--max-cudagraph-capture-size", 255.0, 248.0),
        ("--max-cudagraph-capture-size", 300.0, 288.0),
        ("--cudagraph-capture-sizes", "1 2 4 48", 48.0),
        ("--cuda-graph-sizes", 64.0, 64.0),
        (COMPILE, '{"max_cudagraph_capture_size": 7}', 4.0),
    ],
)
def test_the_largest_graph_by_the_flags(flag: str, value: float | str, largest: float) -> None:
    assert of_facts({flag: Known(value)})["largest_graph_given"] == Known(largest)


def test_no_flag_limits_the_graphs() -> None:
    assert of_facts({"--max-num-seqs": Known(4.0), "--max-cudagraph-capture-size": Known("many")}) == {}


def test_a_key_is_changed_where_it_stands() -> None:
    text = '{"method": "mtp", "num_speculative_tokens": 3}'
    now = rewritten(text, {"num_speculative_tokens": "1", "method": None, "disable_padded_drafter_batch": "true"})
    assert now is not None
    assert json.loads(now) == {"num_speculative_tokens": 1, "disable_padded_drafter_batch": True}


@pytest.mark.parametrize("text", ['{"a": 1}', "[1]", "mtp", '{"a": ', ""])
def test_what_is_no_object_or_has_no_such_key_stays(text: str) -> None:
    assert rewritten(text, {"method": None}) is None

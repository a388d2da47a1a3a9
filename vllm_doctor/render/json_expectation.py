"""What a command will give, as every JSON output writes it (expect.v1.schema.json): times in milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm_doctor.render.json_values import number
from vllm_doctor.text.words import shortened

if TYPE_CHECKING:
    from vllm_doctor.model.expectation import Expectation, LoadExpected, Range

_GIB = 2.0**30


def document(expectation: Expectation) -> dict[str, Any]:
    """`loads` has all loads; what stands beside it is of the first."""
    first = expectation.loads[0]
    return {
        "refused": expectation.refused,
        "fits": expectation.fits,
        "gpus": number(expectation.gpus),
        "gpus_needed": number(expectation.gpus_needed),
        "gpu_memory_gib": _gib(expectation.gpu_memory),
        "weights_gib_per_gpu": _gib(expectation.weights_per_gpu),
        "kv_cache_gib_per_gpu": _gib(expectation.kv_memory_per_gpu),
        "kv_tokens": number(expectation.kv_tokens),
        "requests_that_fit": number(expectation.requests_that_fit),
        "max_model_len": number(expectation.full_length),
        "max_model_len_fits": expectation.context_fits,
        "max_model_len_that_fits": number(expectation.longest_request),
        **_load(first),
        "loads": [_load(load) for load in expectation.loads],
        "assumptions": [
            {"what": one.what, "value": _value(one.value), "unit": one.unit, "from": one.origin}
            for one in expectation.assumptions
        ],
        "unknown": [{"what": one.what, "how": one.how} for one in expectation.unknown],
    }


def _load(load: LoadExpected) -> dict[str, Any]:
    return {
        "concurrency": number(load.load.requests),
        "input_len": number(load.load.input_tokens),
        "output_len": number(load.load.output_tokens),
        "requests_running": number(load.running),
        "requests_queued": number(load.queued),
        "tpot_ms": _milliseconds(load.tpot),
        "ttft_ms": _milliseconds(load.ttft),
        "queue_ms": _milliseconds(load.queue),
        "output_tokens_per_second": _range(load.rate),
        "output_tokens_per_second_per_request": _range(load.rate_of_request),
    }


def _milliseconds(range: Range) -> dict[str, Any]:
    return _range(range.each(lambda seconds: seconds * 1000))


def _range(range: Range) -> dict[str, Any]:
    return {
        "bound": number(range.bound),
        "low": number(range.low),
        "typical": number(range.typical),
        "high": number(range.high),
    }


def _gib(value: float | None) -> Any:
    return None if value is None else number(value / _GIB)


def _value(value: object) -> Any:
    return shortened(value) if isinstance(value, str) else number(value)

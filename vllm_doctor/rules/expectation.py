"""From what is known of a command to what its server will hold and how fast it should be. Pure.

What a step costs, and what fits, are signals (rules/signals/expected.yaml, capacity.yaml); here they are put together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from vllm_doctor.model import outside
from vllm_doctor.model.expectation import Assumption, Expectation, Lacking, Load, LoadExpected, Range
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.text import words

REQUESTS, INPUT, OUTPUT = "load_requests", "load_input_tokens", "load_output_tokens"
"""The facts that tell the load."""
_LENGTH = 1024.0
ALONE = Load(1.0, _LENGTH, _LENGTH)
"""What is assumed where no load is asked about."""
_FEW = 16.0

_TPOT = ("tpot_bound", "tpot_expected_low", "tpot_expected", "tpot_expected_high")
_TTFT = ("ttft_bound", "ttft_expected_low", "ttft_expected", "ttft_expected_high")
_HELD: Mapping[str, str] = {
    "gpus": "gpus_wanted",
    "gpus_here": "gpus_on_host_seen",
    "gpus_needed": "gpus_needed",
    "gpu_memory": "gpu_memory_usable",
    "gpu_memory_taken": "gpu_memory_utilization_then",
    "weights_per_gpu": "weights_in_gpu_memory",
    "kv_memory_per_gpu": "kv_memory_expected",
    "kv_tokens": "load_kv_tokens",
    "requests_that_fit": "load_requests_that_fit",
    "full_length": "max_model_len",
    "full_length_requests": "full_length_requests",
    "longest_request": "max_model_len_that_starts",
}
"""Figures of an Expectation, and the signals that they are."""
_NEEDED_TO_START = "gpus_needed_to_start"
_ASSUMED: Sequence[tuple[str, str, str, str]] = (
    ("model_facts_from", "", "figures of the model", "text"),
    ("model_weights", "", "weights of the model", "bytes"),
    ("parameters", "", "parameters of the model", ""),
    ("parameters_used", "", "parameters that a token uses", ""),
    ("model_dtype", "", "the model's data type", "text"),
    ("model_quantization", "", "the model's quantisation", "text"),
    ("kv_bytes_per_token", "", "KV cache of a token", "bytes"),
    ("kv_cache_dtype", "--kv-cache-dtype", "data type of the KV cache", "text"),
    ("model_context", "", "context of the model", "tokens"),
    ("gpu_name", "", "GPU", "text"),
    ("gpu_memory_usable", "", "memory of a GPU, less ECC", "bytes"),
    ("gpu_bandwidth", "", "its bandwidth", "bytes/s"),
    ("gpu_flops", "", "its 16-bit operations", "FLOP/s"),
    ("gpu_link", "", "link between the GPUs", "text"),
    ("tensor_parallel_size", "--tensor-parallel-size", "tensor parallel size", ""),
    ("pipeline_parallel_size", "--pipeline-parallel-size", "pipeline parallel size", ""),
    ("data_parallel_size", "--data-parallel-size", "data parallel size", ""),
    ("gpu_memory_utilization_then", "--gpu-memory-utilization", "share of memory that vLLM takes", "share"),
    ("max_num_seqs", "--max-num-seqs", "concurrent requests, at most", "requests"),
    ("vllm_version", "", "vLLM", "text"),
)
"""What the answer is computed from: the signal, the flag that sets it, what it is to a person, and its unit."""
_LACKING: Sequence[tuple[str, str, str]] = (
    (
        "model_weights",
        "the size of the model",
        "name it as on the Hugging Face Hub, or give the folder with its config.json and weights in place of the name",
    ),
    (
        "weights_in_gpu_memory",
        "how large the weights on a GPU are",
        "name the quantised checkpoint in place of --quantization, and sizes of parallelism from 1 on",
    ),
    (
        "kv_bytes_per_token",
        "the KV cache of a token",
        "give a folder with the model's config.json in place of its name",
    ),
    ("hidden_layers", "the model's layers", "give a folder with the model's config.json in place of its name"),
    ("gpu_memory_total", "the GPU's memory", "name the GPUs: --gpu 4xH100"),
    ("gpu_bandwidth", "the GPU's memory bandwidth", "name the GPUs: --gpu 4xH100"),
    ("gpu_flops", "the GPU's operations per second", "name the GPUs: --gpu 4xH100"),
    ("max_num_seqs", "how many requests vLLM runs concurrently", "give --max-num-seqs, or vLLM's version"),
)
"""What the answer needs, what that is to a person, and how to give it."""
SIGNALS: Sequence[str] = (
    *_TPOT, *_TTFT, *_HELD.values(), *(name for name, *_ in _ASSUMED), *(name for name, *_ in _LACKING),
    "load_requests_running", _NEEDED_TO_START, "model_experts", "flags_judged_as",
)  # fmt: skip
"""All that is read here."""


def expected(at: Callable[[Load], Snapshot], load: Load | None, refused: str | None = None) -> Expectation:
    """What is expected under this load; without one, under one request, a few, and as many as fit.

    `at`: the signals of one server under a load. `refused`: why vLLM does not start with these flags.
    """
    first = load or ALONE
    snapshot = at(first)
    held = {name: _number(snapshot, signal) for name, signal in _HELD.items()}
    if load is None:  # then it is asked of the command as it is: whether it starts
        held["gpus_needed"] = _number(snapshot, _NEEDED_TO_START)
    fits = None if held["requests_that_fit"] is None else held["requests_that_fit"] >= 1
    loads = [_under(first, at) if fits is not False else _nothing_of(first)]
    if load is None and fits is not False:
        loads += (_under(more, at) for more in _more_of(first, snapshot, held["requests_that_fit"]))
    return Expectation(
        refused=refused,
        fits=fits,
        **held,
        loads=tuple(loads),
        assumptions=(*_assumed(snapshot), *_of_load(load)),
        unknown=tuple(_lacking(snapshot)),
    )


def facts(load: Load) -> dict[str, Value]:
    """The load as facts."""
    return {REQUESTS: load.requests, INPUT: load.input_tokens, OUTPUT: load.output_tokens}


def refusal(snapshot: Snapshot, catalogue: Catalogue) -> str | None:
    """Why vLLM does not start with the flags that the command has; None where nothing says so."""

    def read(name: str) -> Reading:
        return snapshot.read(name, snapshot.subjects[0])[1]

    def worded(name: str) -> tuple[Reading, str]:
        return read(name), catalogue.signals[name].unit

    says = (refusal.says for refusal in catalogue.refusals if refusal.when.judge(read)[0])
    return next((words.fill(sentence, worded) or sentence for sentence in says), None)


def load_of(known: Mapping[str, Value]) -> Load | None:
    """The load that these facts tell; None where they do not."""
    told = [outside.number(known[name]) for name in (REQUESTS, INPUT, OUTPUT) if name in known]
    requests, *lengths = [value for value in told if value is not None] or [0.0]
    return Load(requests, *lengths) if len(lengths) == 2 else None


def _under(load: Load, at: Callable[[Load], Snapshot]) -> LoadExpected:
    """What the load gets: those that run get what they would get alone, the others wait for their turn."""
    snapshot = at(load)
    replicas = _number(snapshot, "data_parallel_size") or 1.0
    on_one = _number(snapshot, "load_requests_running")
    running = load.requests if on_one is None else min(load.requests, max(1.0, on_one) * replicas)
    if running < load.requests:
        snapshot = at(Load(running, load.input_tokens, load.output_tokens))
    tpot, ttft = _range(snapshot, _TPOT), _range(snapshot, _TTFT)
    seconds = _together(ttft, tpot, lambda first, next: first + max(0.0, load.output_tokens - 1) * next)
    of_one = seconds.each(lambda seconds: load.output_tokens / seconds if seconds else math.inf).swapped
    # By Little's law: of so many in flight those that do not run wait.
    queue = seconds.each(lambda seconds: seconds * (load.requests / running - 1))
    return LoadExpected(
        load=load,
        running=None if on_one is None else running,
        tpot=tpot,
        ttft=_together(ttft, queue, lambda first, waits: first + waits),
        rate=of_one.each(lambda rate: rate * running),
        rate_of_request=of_one,
        queue=Range() if on_one is None else queue,
    )


def _nothing_of(load: Load) -> LoadExpected:
    """What the load gets where the model does not fit."""
    none = Range()
    return LoadExpected(load, 0.0, none, none, none, none, none)


def _more_of(first: Load, snapshot: Snapshot, most: float | None) -> Iterator[Load]:
    """A few requests, and as many as fit, as long as the first."""
    admitted = _number(snapshot, "max_num_seqs")
    replicas = _number(snapshot, "data_parallel_size") or 1.0
    if most is not None and admitted is not None:
        most = min(most, admitted * replicas)
    for requests in dict.fromkeys((_FEW if most is None else min(_FEW, most), most)):
        if requests is not None and requests > first.requests:
            yield Load(requests, first.input_tokens, first.output_tokens)


def _together(one: Range, other: Range, of: Callable[[float, float], float]) -> Range:
    pairs = ((one.bound, other.bound), (one.low, other.low), (one.typical, other.typical), (one.high, other.high))
    bound, low, typical, high = (None if a is None or b is None else of(a, b) for a, b in pairs)
    return Range(bound, low, typical, high)


def _range(snapshot: Snapshot, names: Sequence[str]) -> Range:
    bound, low, typical, high = (_number(snapshot, name) for name in names)
    return Range(bound, low, typical, high)


def _number(snapshot: Snapshot, name: str) -> float | None:
    reading = _known(snapshot, name)
    return None if reading is None or isinstance(reading.value, str) else outside.number(reading.value)


def _known(snapshot: Snapshot, name: str) -> Known | None:
    reading = snapshot.read(name, snapshot.subjects[0])[1]
    return reading if isinstance(reading, Known) else None


def _assumed(snapshot: Snapshot) -> Iterator[Assumption]:
    is_dense = not _number(snapshot, "model_experts")
    for name, flag, what, unit in _ASSUMED:
        reading = _known(snapshot, name)
        if name == "vllm_version" and reading is None:  # then its flags are read as those of the newest
            newest = _known(snapshot, "flags_judged_as")
            origin = "newest" if _known(snapshot, "flags_window_says") is None else "flags"
            reading = None if newest is None else Known(newest.value, origin=origin)
        if reading is None or (name == "parameters_used" and is_dense):
            continue
        is_default = flag and flag not in snapshot.flags
        yield Assumption(what, reading.value, unit, "default" if is_default else reading.origin)


def _of_load(load: Load | None) -> Iterator[Assumption]:
    if load is None:
        yield Assumption("prompt tokens of a request", _LENGTH, "tokens", "assumed")
        yield Assumption("generated tokens of a request", _LENGTH, "tokens", "assumed")
    yield Assumption("prompt tokens from prefix cache", 0.0, "share", "assumed")


def _lacking(snapshot: Snapshot) -> Iterator[Lacking]:
    is_of_no_size = _known(snapshot, "model_weights") is None
    for name, what, how in _LACKING:
        if _known(snapshot, name) is None and not (name == "weights_in_gpu_memory" and is_of_no_size):
            yield Lacking(what, how)

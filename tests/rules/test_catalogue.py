from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.making import catalogue_of, shipped_catalogue, window
from tests.sources.host.test_model_files import LLAMA_KV
from vllm_doctor.model.reading import Known, Reading, Subject, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.snapshot import Snapshot

ENGINE = (("engine", "0"), ("model_name", "m"))
ON_0 = 'engine="0",model_name="m"'
ON_1 = 'engine="1",model_name="m"'
RUNNING = f"vllm:num_requests_running{{{ON_0}}} 3\n"


def snapshot(*pages: str, **facts: Value) -> Snapshot:
    """What the shipped catalogue makes of these pages."""
    return shipped_catalogue().snapshot(window(*pages), {name: Known(value) for name, value in facts.items()})


def read(name: str, *pages: str, **facts: Value) -> Reading:
    """A signal of engine 0 of model m; the pages need not repeat that it runs."""
    return snapshot(*(RUNNING + page for page in pages), **facts).read(name, ENGINE)[1]


# ---- engines


@pytest.mark.parametrize(
    ("page", "subjects"),
    [
        pytest.param(
            f"vllm:num_requests_running{{{ON_1}}} 4\nvllm:num_requests_running{{{ON_0}}} 3",
            ((("engine", "0"), ("model_name", "m")), (("engine", "1"), ("model_name", "m"))),
            id="engine and model",
        ),
        pytest.param(
            'vllm:num_requests_running{model_name="m"} 3\nvllm:num_requests_running{model_name="n"} 4',
            ((("model_name", "m"),), (("model_name", "n"),)),
            id="only the model, before 0.10",
        ),
        pytest.param(
            f'vllm:num_requests_running{{ReplicaId="a",{ON_0}}} 3\nvllm:num_requests_running{{ReplicaId="b",{ON_0}}} 4',
            (
                (("ReplicaId", "a"), ("engine", "0"), ("model_name", "m")),
                (("ReplicaId", "b"), ("engine", "0"), ("model_name", "m")),
            ),
            id="two replicas under Ray",
        ),
        pytest.param("vllm:num_requests_running 3", ((),), id="no labels"),
    ],
)
def test_one_series_is_one_engine_named_by_its_labels(page: str, subjects: tuple[Subject, ...]) -> None:
    seen = snapshot(page)
    assert seen.subjects == subjects
    values = [seen.read("requests_running", subject) for subject in subjects]
    assert values == [(subject, Known(3.0 + place)) for place, subject in enumerate(subjects)]


def test_where_nothing_of_vllm_is_exported_one_unnamed_engine_is_all_unknown() -> None:
    seen = snapshot("process_cpu_seconds_total 4", "process_cpu_seconds_total 5", vllm_version="0.32.0")
    assert seen.subjects == ((),)
    assert seen.read("requests_running", ()) == ((), Unknown(Reason.ABSENT))
    assert seen.read("speculative_decoding", ()) == ((), Unknown(Reason.ABSENT))
    assert seen.read("vllm_version", ()) == ((), Known("0.32.0"))


def test_what_is_assumed_of_a_server_is_assumed_of_each_of_its_engines() -> None:
    """Though a way before the assumption is a formula that is not known."""
    seen = snapshot(f"vllm:num_requests_running{{{ON_0}}} 3\nvllm:num_requests_running{{{ON_1}}} 4")
    assert [seen.read("device_assumed", subject)[1] for subject in seen.subjects] == [Known(1.0, origin="")] * 2


def test_an_engine_that_vanished_is_none() -> None:
    gone = f"vllm:num_requests_running{{{ON_1}}} 3\n"
    assert snapshot(RUNNING + gone, RUNNING).subjects == (ENGINE,)


def test_a_servers_a_models_and_an_engines_signal_are_read_for_each_engine() -> None:
    page = f"{RUNNING}vllm:num_requests_running{{{ON_1}}} 5\nprocess_cpu_seconds_total "
    seen = snapshot(page + "10", page + "13")
    for subject in seen.subjects:
        assert seen.read("api_process_cpu", subject) == ((), Known(1.5))
        assert seen.read("engines", subject) == ((("model_name", "m"),), Known(2.0))
        # a formula over a server's signal is the server's
        assert seen.read("api_servers_wanted", subject) == ((), Known(3.0))
    assert [seen.read("running_over_peers", subject) for subject in seen.subjects] == [
        (subject, Known(running / 4)) for subject, running in zip(seen.subjects, (3, 5), strict=True)
    ]


# ---- labels of info metrics


def test_cache_config_without_a_model_is_read_for_its_engine() -> None:
    seen = snapshot(
        f"{RUNNING}vllm:num_requests_running{{{ON_1}}} 5\n"
        'vllm:cache_config_info{engine="0",num_gpu_blocks="100",block_size="16"} 1\n'
        'vllm:cache_config_info{engine="1",num_gpu_blocks="200",block_size="16"} 1\n'
    )
    first, second = seen.subjects
    assert seen.read("kv_blocks", first) == ((("engine", "0"),), Known(100.0))
    assert seen.read("kv_cache_size", first)[1] == Known(1600.0)
    assert seen.read("kv_cache_size", second)[1] == Known(3200.0)


@pytest.mark.parametrize(
    ("signal", "label", "expected"),
    [
        pytest.param("kv_blocks_override", 'num_gpu_blocks_override="None"', Known(0), id="None, said to be 0"),
        pytest.param("kv_blocks_override", 'num_gpu_blocks_override="512"', Known(512.0), id="a number"),
        pytest.param("kv_blocks", 'num_gpu_blocks="None"', Unknown(Reason.ABSENT), id="None"),
        pytest.param("kv_blocks", 'block_size="16"', Unknown(Reason.ABSENT), id="no such label"),
        pytest.param("kv_blocks", 'num_gpu_blocks="many"', Unknown(Reason.INVALID), id="no number"),
        pytest.param("kv_blocks", 'num_gpu_blocks="nan"', Unknown(Reason.INVALID), id="not a number"),
        pytest.param("kv_cache_dtype", 'cache_dtype="auto"', Known("auto"), id="a text"),
        pytest.param("kv_cache_dtype", 'cache_dtype="1"', Known("1"), id="a text like a number"),
        pytest.param("prefix_caching", 'enable_prefix_caching="True"', Known(True), id="True"),
        pytest.param("prefix_caching", 'enable_prefix_caching="False"', Known(False), id="False"),
        pytest.param("gpu_memory_utilization", 'gpu_memory_utilization="0.9"', Known(0.9), id="a share"),
    ],
)
def test_a_label_as_a_value(signal: str, label: str, expected: Reading) -> None:
    assert read(signal, f'vllm:cache_config_info{{engine="0",{label}}} 1') == expected


def test_of_lora_label_sets_the_newest_counts() -> None:
    def info(running: str, waiting: str, at: float) -> str:
        labels = f'max_lora="4",running_lora_adapters="{running}",waiting_lora_adapters="{waiting}"'
        return f"vllm:lora_requests_info{{{labels}}} {at}\n"

    page = info("a,b,c,d", "e", 1000.0) + info("a,b", "", 3000.0) + info("a", "b", 2000.0)
    assert read("lora", page) == Known(True)
    assert read("lora_running", page) == Known(2.0)
    assert read("lora_waiting", page) == Known(0.0)
    assert read("lora_wanted", page) == Known(2.0)
    assert read("lora_slots", page) == Known(4.0)


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        pytest.param("vllm:spec_decode_num_drafts_total 0", Known(True), id="exported"),
        pytest.param("", Known(False), id="not exported"),
    ],
)
def test_present(page: str, expected: Reading) -> None:
    assert read("speculative_decoding", page) == expected


# ---- why a signal is not known


@pytest.mark.parametrize(
    ("signal", "pages", "reason"),
    [
        pytest.param("preemptions_per_second", ("", ""), Reason.ABSENT, id="absent"),
        pytest.param(
            "preemptions_per_second", (f"vllm:num_preemptions_total{{{ON_0}}} 4",), Reason.FIRST_SCRAPE, id="one scrape"
        ),
        pytest.param(
            "queue_time",
            (f"vllm:request_queue_time_seconds_sum{{{ON_0}}} 4\nvllm:request_queue_time_seconds_count{{{ON_0}}} 2",)
            * 2,
            Reason.IDLE,
            id="idle: 0/0",
        ),
        pytest.param(
            "ttft_p99",
            (
                f'vllm:time_to_first_token_seconds_bucket{{le="1.0",{ON_0}}} 4\n'
                f'vllm:time_to_first_token_seconds_bucket{{le="+Inf",{ON_0}}} 4',
            )
            * 2,
            Reason.IDLE,
            id="idle: an empty histogram",
        ),
        pytest.param("slo_ttft", ("",), Reason.NOT_GIVEN, id="not given"),
        pytest.param("max_num_seqs", ("",), Reason.NOT_LOCAL, id="not local"),
        pytest.param("token_budget_fill", ("", ""), Reason.ABSENT, id="a formula: of its operand"),
    ],
)
def test_why_a_signal_is_not_known(signal: str, pages: tuple[str, ...], reason: Reason) -> None:
    assert read(signal, *pages) == Unknown(reason)


def test_a_quantile_is_known_within_its_bucket_and_so_is_what_is_computed_from_it() -> None:
    def page(*counts: int) -> str:
        name = "vllm:time_to_first_token_seconds_bucket"
        bounds = zip(("0.5", "1.0", "2.5", "5.0", "+Inf"), counts, strict=True)
        return "\n".join(f'{name}{{le="{bound}",{ON_0}}} {count}' for bound, count in bounds)

    pages = (page(5, 5, 5, 5, 5), page(5, 15, 15, 25, 25))
    p99, tail = read("ttft_p99", *pages), read("ttft_tail", *pages)
    assert isinstance(p99, Known)
    assert p99.bounds == (2.5, 5.0)
    assert isinstance(tail, Known)
    assert tail.bounds == (2.5, 10.0)
    beyond = read("ttft_p99", page(0, 0, 0, 0, 0), page(0, 0, 0, 0, 9))
    assert isinstance(beyond, Known)
    assert beyond.bounds == (5.0, math.inf)


# ---- other versions


@pytest.mark.parametrize(
    ("signal", "pages", "expected"),
    [
        pytest.param("kv_cache_usage", (f"vllm:kv_cache_usage_perc{{{ON_0}}} 0.5",), 0.5, id="cache usage"),
        pytest.param("kv_cache_usage", (f"vllm:gpu_cache_usage_perc{{{ON_0}}} 0.4",), 0.4, id="cache usage, old"),
        pytest.param(
            "kv_cache_usage",
            (f"vllm:gpu_cache_usage_perc{{{ON_0}}} 0.9\nvllm:kv_cache_usage_perc{{{ON_0}}} 0.5",),
            0.5,
            id="cache usage, both",
        ),
        pytest.param(
            "itl_mean",
            tuple(
                f"vllm:inter_token_latency_seconds_sum{{{ON_0}}} {total}\n"
                f"vllm:inter_token_latency_seconds_count{{{ON_0}}} {count}"
                for total, count in ((1, 100), (3, 200))
            ),
            0.02,
            id="inter-token latency",
        ),
        pytest.param(
            "itl_mean",
            tuple(
                f"vllm:time_per_output_token_seconds_sum{{{ON_0}}} {total}\n"
                f"vllm:time_per_output_token_seconds_count{{{ON_0}}} {count}"
                for total, count in ((1, 100), (3, 200))
            ),
            0.02,
            id="inter-token latency, old",
        ),
        pytest.param("prefix_hit_share", (f"vllm:gpu_prefix_cache_hit_rate{{{ON_0}}} 0.25",), 0.25, id="hit rate, V0"),
        pytest.param(
            "waiting_for_capacity",
            (
                f"vllm:num_requests_waiting{{{ON_0}}} 9\n"
                f'vllm:num_requests_waiting_by_reason{{reason="capacity",{ON_0}}} 4\n'
                f'vllm:num_requests_waiting_by_reason{{reason="deferred",{ON_0}}} 5',
            ),
            4,
            id="waiting, by reason",
        ),
        pytest.param(
            "waiting_for_capacity", (f"vllm:num_requests_waiting{{{ON_0}}} 9",), 9, id="waiting, before reasons"
        ),
    ],
)
def test_the_metrics_of_older_versions(signal: str, pages: tuple[str, ...], expected: float) -> None:
    found = read(signal, *pages)
    assert isinstance(found, Known)
    assert found.value == pytest.approx(expected)


def test_the_catalogue_tells_which_metrics_a_source_must_keep() -> None:
    assert {
        "vllm:num_requests_running",
        "vllm:gpu_cache_usage_perc",
        "vllm:cache_config_info",
        "vllm:spec_decode_num_drafts_total",
        "process_cpu_seconds_total",
    } <= shipped_catalogue().metrics


# ---- what a server was started with

STARTED = """
signals:
  seqs: {says: s, unit: requests, flag: --max-num-seqs}
  tensor_parallel: {says: s, unit: "", flag: --tensor-parallel-size, none: 1}
  eager: {says: s, unit: flag, flag: --enforce-eager, none: false}
  threads: {says: s, unit: "", env: OMP_NUM_THREADS, none: 0}
  device: {says: s, unit: text, env: CUDA_VISIBLE_DEVICES}
"""
COMMAND, ENVIRONMENT = Known(True, origin="cmdline"), Known(True, origin="environ")
NOT_SET, NOT_LOCAL, DENIED = (Unknown(reason) for reason in (Reason.NOT_SET, Reason.NOT_LOCAL, Reason.DENIED))


@pytest.mark.parametrize(
    ("signal", "facts", "expected", "origin"),
    [
        pytest.param("seqs", {"--max-num-seqs": Known(64.0, origin="cmdline")}, Known(64.0), "cmdline", id="a flag"),
        pytest.param("eager", {"--enforce-eager": Known(True, origin="cmdline")}, Known(True), "cmdline", id="switch"),
        pytest.param("seqs", {"command": COMMAND}, NOT_SET, "", id="a flag that was not given"),
        pytest.param("tensor_parallel", {"command": COMMAND}, Known(1.0), "cmdline", id="not given: it is this"),
        pytest.param("eager", {"command": COMMAND}, Known(False), "cmdline", id="not given: it is off"),
        pytest.param("seqs", {}, NOT_LOCAL, "", id="no command line was read"),
        pytest.param("eager", {}, NOT_LOCAL, "", id="no command line was read, so none does not hold"),
        pytest.param("eager", {"command": DENIED}, DENIED, "", id="a command line that is denied"),
        pytest.param("eager", {"environment": ENVIRONMENT}, NOT_LOCAL, "", id="the environment is another thing"),
        pytest.param("threads", {"$OMP_NUM_THREADS": Known(8.0, origin="environ")}, Known(8.0), "environ", id="env"),
        pytest.param("threads", {"environment": ENVIRONMENT}, Known(0.0), "environ", id="a variable that is not set"),
        pytest.param("device", {"environment": ENVIRONMENT}, NOT_SET, "", id="not set, and it may be anything"),
        pytest.param("threads", {"environment": DENIED}, DENIED, "", id="an environment that is denied"),
        pytest.param("threads", {"command": COMMAND}, NOT_LOCAL, "", id="no environment was read"),
        pytest.param("threads", {"--omp-num-threads": Known(8.0)}, NOT_LOCAL, "", id="a flag is no variable"),
    ],
)  # fmt: skip
def test_flags_and_variables(
    signal: str, facts: dict[str, Reading], expected: Reading, origin: str, tmp_path: Path
) -> None:
    _, reading = catalogue_of(tmp_path, STARTED).snapshot(window(), facts).read(signal, ())
    assert reading == expected
    if isinstance(reading, Known):
        assert reading.origin == origin
        assert isinstance(reading.value, bool) == (signal == "eager")


def test_the_flags_of_a_server_go_with_its_snapshot() -> None:
    facts: dict[str, Reading] = {
        "--max-num-seqs": Known(64.0, origin="cmdline"),
        "--api-server-count": Unknown(Reason.INVALID),
        "$OMP_NUM_THREADS": Known(8.0),
        "command": COMMAND,
    }
    assert shipped_catalogue().snapshot(window(), facts).flags == {"--max-num-seqs": 64.0, "$OMP_NUM_THREADS": 8.0}


def test_without_scrapes_facts_are_known_all_the_same() -> None:
    seen = snapshot(gpus=2.0, gpu_memory_foreign=9e9)
    assert seen.subjects == ((),)
    assert seen.read("gpus", ()) == ((), Known(2.0))
    for name in ("requests_running", "kv_cache_usage", "lora", "kv_blocks"):
        assert seen.read(name, ())[1] == Unknown(Reason.UNREACHABLE), name


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"--max-num-seqs": 64.0, "max_num_seqs_default": 256.0}, Known(64.0)),
        ({"max_num_seqs_default": 256.0}, Known(256.0)),
        ({}, Unknown(Reason.NOT_SET)),
    ],
)
def test_max_num_seqs_as_given_or_as_it_is_by_default(facts: dict[str, Value], expected: Reading) -> None:
    assert snapshot(**{"command": True} | facts).read("max_num_seqs", ())[1] == expected


@pytest.mark.parametrize(
    ("counts", "wanted"), [((1, 1, 1, 0), 3.0), ((1, 1, 8, 0), 10.0), ((2, 2, 2, 1), 7.0), ((4, 8, 8, 1), 21.0)]
)
def test_the_cores_that_vllm_wants(counts: tuple[int, ...], wanted: float) -> None:
    names = ("api_servers", "engine_cores", "workers", "coordinators")
    facts = {name: float(count) for name, count in zip(names, counts, strict=True)}
    assert snapshot(**facts).read("cores_wanted", ())[1] == Known(wanted)


# ---- what the KV cache holds

GIB = 2.0**30
LLAMA_8B: dict[str, Value] = {**LLAMA_KV, "hidden_layers": 32.0, "command": True}
DEEPSEEK_V3 = LLAMA_8B | {"hidden_layers": 61.0, "kv_bytes_per_token": 70_272.0, "kv_cache_heads": 1.0}
GEMMA3_4B = LLAMA_8B | {
    "hidden_layers": 34.0,
    "kv_bytes_per_token": 20_480.0,
    "kv_window_bytes_per_token": 118_784.0,
    "kv_window": 1024.0,
    "kv_cache_heads": 4.0,
}
QWEN35_27B = LLAMA_8B | {
    "hidden_layers": 64.0,
    "kv_bytes_per_token": 65_536.0,
    "kv_state_bytes": 48 * 3_207_168.0,
    "kv_state_page_bytes": 48 * 4096.0,
    "kv_cache_heads": 4.0,
}


def kv_page(concurrency: float, max_model_len: int, **labels: object) -> str:
    """What vLLM 0.32 says of its KV cache, on a page where ten requests of 300 tokens and 200 more have finished."""
    told = {
        "block_size": 16,
        "kv_cache_max_concurrency": concurrency,
        "kv_cache_size_tokens": int(concurrency * max_model_len),
        "kv_cache_memory_bytes": None,
        "num_gpu_blocks_override": None,
        "enable_prefix_caching": True,
    } | labels
    text = ",".join(f'{name}="{value}"' for name, value in told.items())
    return (
        f'vllm:cache_config_info{{engine="0",{text}}} 1\n'
        f"vllm:request_prompt_tokens_sum{{{ON_0}}} 3000\nvllm:request_prompt_tokens_count{{{ON_0}}} 10\n"
        f"vllm:request_generation_tokens_sum{{{ON_0}}} 2000\nvllm:request_generation_tokens_count{{{ON_0}}} 10\n"
    )


@pytest.mark.parametrize(
    ("model", "flags", "expected"),
    [
        (LLAMA_8B, {}, 131_072),
        (LLAMA_8B, {"--tensor-parallel-size": 4.0}, 32_768),
        (LLAMA_8B, {"--tensor-parallel-size": 16.0}, 16_384),  # 8 heads on 16 GPUs: each stands twice
        (LLAMA_8B, {"--tensor-parallel-size": 16.0, "--decode-context-parallel-size": 2.0}, 8_192),
        (LLAMA_8B, {"--pipeline-parallel-size": 2.0}, 65_536),
        (LLAMA_8B, {"--pipeline-parallel-size": 3.0}, 131_072 * 11 / 32),  # 11, 11 and 10 layers
        (DEEPSEEK_V3, {"--tensor-parallel-size": 8.0}, 70_272),  # one latent vector for all heads
        (DEEPSEEK_V3, {"--tensor-parallel-size": 8.0, "--decode-context-parallel-size": 8.0}, 8_784),
        (DEEPSEEK_V3 | {"kv_draft_bytes_per_token": 1152.0}, {}, 71_424),
    ],
)
def test_kv_bytes_of_a_token_on_a_gpu(model: dict[str, Value], flags: dict[str, Value], expected: float) -> None:
    found = read("kv_bytes_per_token_per_gpu", "", **model, **flags)
    assert isinstance(found, Known)
    assert found.value == pytest.approx(expected)


def test_what_vllm_says_of_its_cache_is_not_computed_again() -> None:
    page = kv_page(10.0, 1000)
    for facts in (LLAMA_8B, {}):
        assert read("kv_tokens", page, **facts) == Known(10_000.0)
        assert read("requests_that_fit", page, **facts) == Known(20.0)  # of 500 tokens
        assert read("max_num_seqs_for_throughput", page, **facts) == Known(22.0)  # 90 % of 10,000 / (300 + 200 / 2)
        assert read("watermark_wanted", page, **facts) == Known(0.05)  # one of the twenty


@pytest.mark.parametrize(
    ("model", "page", "max_model_len", "pool", "per_request"),
    [
        # v0.23 on an MI300X; three more windowed layers fill up its groups
        (GEMMA3_4B, kv_page(148.63, 8192), 8192, 162.84, 512 * 20_480 + 500 * 118_784),
        # v0.27 on an H100; the state, twice, is most of a short request
        (QWEN35_27B, kv_page(71.42, 4096, block_size=784), 4096, 41.03, 784 * 65_536 + 2 * 48 * 784 * 4096),
    ],
    ids=["windows", "states"],
)
def test_short_requests_of_a_model_that_keeps_windows_or_states(
    model: dict[str, Value], page: str, max_model_len: int, pool: float, per_request: float
) -> None:
    """The pool (GiB) and the requests of full length are what real servers logged; these have 500 tokens."""
    facts = model | {"max_model_len": float(max_model_len), "--max-num-batched-tokens": 8192.0}
    assert read("kv_memory_per_request", page, **facts) == Known(per_request)
    memory, fitting = read("kv_memory", page, **facts), read("requests_that_fit", page, **facts)
    assert isinstance(memory, Known)
    assert isinstance(fitting, Known)
    assert memory.value == pytest.approx(pool * GIB, rel=0.04)
    assert fitting.value == pytest.approx(pool * GIB / per_request, rel=0.04)


@pytest.mark.parametrize(
    ("caching", "copies", "block", "tensor_parallel", "expected"),
    [
        (False, 2, 16, 1, 48 * 3_207_168),  # a block that is smaller than a state: another version, or not told
        (True, 2, 16, 1, 2 * 48 * 3_207_168),
        (True, 3, 16, 1, 3 * 48 * 3_207_168),
        (True, 2, 784, 1, 2 * 48 * 784 * 4096),
        (False, 2, 784, 2, 48 * 784 * 2048),
        (False, 2, 16, 8, 48 * 3_207_168 / 8),  # states are split on, where 4 KV heads are not
    ],
)
def test_the_state_of_a_sequence(
    caching: bool, copies: float, block: int, tensor_parallel: float, expected: float
) -> None:
    page = kv_page(10.0, 4096, block_size=block, enable_prefix_caching=caching)
    facts = QWEN35_27B | {"kv_state_copies": copies, "--tensor-parallel-size": tensor_parallel}
    assert read("kv_state_bytes_per_gpu", page, **facts) == Known(expected)


def test_windows_that_the_hybrid_manager_would_keep() -> None:
    page = kv_page(10.0, 8192)
    facts = GEMMA3_4B | {"max_model_len": 8192.0}
    assert read("kv_memory_needed", page, **facts) == Known(8192 * 20_480.0 + 1024 * 118_784)
    off = facts | {"--disable-hybrid-kv-cache-manager": True}
    assert read("kv_memory_needed", page, **off) == Known(8192 * 139_264.0)
    assert read("kv_tokens", page, **off) == Known(81_920.0)  # as vLLM says: each token costs the same
    windows_only = off | {"kv_bytes_per_token": 0.0}
    assert read("kv_memory_needed", page, **windows_only) == Known(1024 * 118_784.0)


@pytest.mark.parametrize(
    ("labels", "facts", "expected"),
    [
        ({"kv_cache_memory_bytes": 5e9}, {}, 5e9),
        ({}, {"log": True, "log:kv-memory.gib": 4.0}, 4 * GIB),
        ({"num_gpu_blocks_override": 7}, {"log": True, "log:kv-memory.gib": 4.0}, 10 * 1008 * 131_072.0),
        ({}, {}, 10 * 1008 * 131_072.0),  # 1,000 tokens in blocks of 16
    ],
    ids=["given", "logged", "blocks by hand", "by its concurrency"],
)
def test_the_caches_memory(labels: dict[str, object], facts: dict[str, Value], expected: float) -> None:
    page = kv_page(10.0, 1000, **labels)
    assert read("kv_memory", page, **LLAMA_8B, **facts, max_model_len=1000.0) == Known(expected)


def test_long_requests() -> None:
    def page(count: int) -> str:
        def histogram(name: str, bounds: tuple[int, int]) -> str:
            metric = f"vllm:request_{name}_tokens_bucket"
            return "".join(
                f'{metric}{{le="{le}",{ON_0}}} {number}\n'
                for le, number in ((bounds[0], 0), (bounds[1], count), ("+Inf", count))
            )

        return histogram("prompt", (500, 1000)) + histogram("generation", (200, 500)) + kv_page(10.0, 4000)

    found = read("requests_that_fit_p90", page(0), page(10), **LLAMA_8B)
    assert isinstance(found, Known)
    assert found.bounds == (26.0, 57.0)  # 40,000 tokens in requests of 700 to 1,500


def test_what_the_gpus_memory_holds() -> None:
    # 80 GiB x 0.9 - 16 GiB of weights - 3 % of 80 GiB
    facts = LLAMA_8B | {"gpu_memory_total": 80 * GIB, "gpu_memory_free": 10 * GIB, "model_weights": 16 * GIB}
    facts |= {"--gpu-memory-utilization": 0.8}
    left = 80 * GIB * 0.8 - 16 * GIB - 2.4 * GIB
    memory, tokens = read("kv_memory_computed", "", **facts), read("tokens_that_fit", "", **facts)
    assert isinstance(memory, Known)
    assert memory.value == pytest.approx(left)
    assert tokens == Known(float(left // 131_072))
    assert read("tokens_that_fit", kv_page(10.0, 1000), **facts) == Known(float(left // (512 * 131_072 / 500)))
    assert read("gpu_memory_utilization_wanted", "", **facts) == Known(0.9)  # 0.8 + 10/80 - 0.02, rounded down
    gained = read("kv_tokens_gained", "", **facts)
    assert isinstance(gained, Known)
    assert gained.value == pytest.approx(0.1 * 80 * GIB / 131_072, abs=1)
    two = facts | {"--tensor-parallel-size": 2.0}
    memory = read("kv_memory_computed", "", **two)
    assert isinstance(memory, Known)
    assert memory.value == pytest.approx(left + 8 * GIB)
    given = facts | {"--kv-cache-memory-bytes": 5e9}
    assert read("kv_memory_computed", "", **given) == Known(5e9)
    assert read("tokens_that_fit", "", **given) == Known(float(5e9 // 131_072))


def test_a_model_too_large_for_its_gpu_leaves_nothing() -> None:
    facts = LLAMA_8B | {"gpu_memory_total": 10 * GIB, "model_weights": 16 * GIB}
    assert read("tokens_that_fit", "", **facts) == Known(0.0)


def test_the_memory_to_ask_for() -> None:
    facts = LLAMA_8B | {
        "gpu_memory_total": 80 * GIB,
        "gpu_memory_free": 10 * GIB,
        "log": True,
        "log:kv-memory.gib": 40.0,
    }
    found = read("kv_memory_wanted", "", **facts)
    assert isinstance(found, Known)
    assert found.value == pytest.approx(47.6 * GIB, abs=1)  # 40 + 10, of which 3 % of 80 stay free
    told = facts | {"log:memory-summary.kv_bytes_whole_gpu": 65_498_251_264.0}
    assert read("kv_memory_wanted", "", **told) == Known(65_498_251_264.0)


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({"gpu_memory_free": 10 * GIB}, 0.9),  # 0.8 + 0.125 - 0.02
        ({"gpu_memory_free": 1 * GIB}, 0.8),  # nothing to gain
        ({"gpu_memory_free": 40 * GIB}, 0.95),
        # another server's 16 GiB; ours has not yet touched 12 of the 64 that it asked for
        ({"gpu_memory_free": 12 * GIB, "gpu_memory_foreign": 16 * GIB}, 0.8),
        ({"gpu_memory_free": 12 * GIB, "gpu_memory_foreign": 8 * GIB}, 0.88),
    ],
)
def test_no_more_of_a_gpu_is_asked_for_than_is_free(facts: dict[str, Value], wanted: float) -> None:
    facts = LLAMA_8B | {"gpu_memory_total": 80 * GIB, "--gpu-memory-utilization": 0.8} | facts
    found = read("gpu_memory_utilization_wanted", "", **facts)
    assert isinstance(found, Known)
    assert found.value == pytest.approx(wanted)


def test_free_memory_that_is_not_seen_is_not_zero() -> None:
    facts = LLAMA_8B | {"gpu_memory_total": 80 * GIB, "--gpu-memory-utilization": 0.8}
    assert read("gpu_memory_utilization_wanted", "", **facts) == Unknown(Reason.NOT_LOCAL)
    assert read("gpu_memory_spare", "", **facts) == Known(1.0)
    assert read("gpu_memory_utilization_if_free", "", **facts) == Known(0.0)


@pytest.mark.parametrize(
    ("facts", "growth"),
    [
        ({"--kv-cache-memory-bytes": 20 * GIB, "gpu_memory_free": 10 * GIB}, 0.38),  # 7.6 of 20
        ({"--kv-cache-memory-bytes": 20 * GIB, "gpu_memory_free": 1 * GIB}, 0.0),
        ({"--kv-cache-memory-bytes": 20 * GIB}, 0.0),
        ({"gpu_memory_free": 10 * GIB}, 0.0),  # not given by hand
    ],
)
def test_how_far_a_cache_that_was_given_by_hand_could_grow(facts: dict[str, Value], growth: float) -> None:
    page = kv_page(10.0, 1000, kv_cache_memory_bytes=facts.get("--kv-cache-memory-bytes"))
    found = read("kv_memory_growth", page, **LLAMA_8B, gpu_memory_total=80 * GIB, **facts)
    assert isinstance(found, Known)
    assert found.value == pytest.approx(growth)


@pytest.mark.parametrize(
    ("in_flight", "facts", "wanted", "for_throughput"),
    [
        (17, {}, 20.0, 22.0),  # 20 fit at full length, 22 on average
        (12, {}, 16.0, 16.0),  # the next power of two
        (17, {"--max-num-batched-tokens": 18.0}, 20.0, 22.0),  # dropped with the same cure
    ],
)
def test_the_max_num_seqs_that_admits_what_waits(
    in_flight: int, facts: dict[str, Value], wanted: float, for_throughput: float
) -> None:
    page = f"vllm:num_requests_waiting{{{ON_0}}} {in_flight - 3}\n{kv_page(10.0, 1000)}"
    assert read("max_num_seqs_wanted", page, **LLAMA_8B, **facts) == Known(wanted)
    assert read("max_num_seqs_wanted_for_throughput", page, **LLAMA_8B, **facts) == Known(for_throughput)


def test_the_context_that_the_pool_holds() -> None:
    page = kv_page(0.5, 8192)  # 4,096 tokens; three requests run
    assert read("max_model_len_of_pool", page) == Known(4096.0)
    assert read("max_model_len_that_fits", page + f"vllm:num_requests_waiting{{{ON_0}}} 0\n") == Known(1024.0)
    small = kv_page(0.05, 8192)
    assert read("max_model_len_of_pool", small) == Known(400.0)  # 409 tokens, in whole blocks
    assert read("max_model_len_that_fits", small + f"vllm:num_requests_waiting{{{ON_0}}} 0\n") == Known(400.0)


@pytest.mark.parametrize(
    ("weights", "tensor_parallel", "usage", "wanted"),
    [
        (16 * GIB, 4.0, 0.1, 1.0),
        (80 * GIB, 4.0, 0.1, 2.0),  # 80 of 69.6
        (60 * GIB, 6.0, 0.9, 3.0),  # 40 GiB of KV cache on a GPU, 90 % of it used: 45 must stay beside the weights
        (60 * GIB, 6.0, 0.1, 1.0),
        (150 * GIB, 6.0, 0.1, 3.0),  # a divisor of 6
        (400 * GIB, 8.0, 0.1, 8.0),
    ],
)
def test_the_gpus_that_weights_and_cache_need(
    weights: float, tensor_parallel: float, usage: float, wanted: float
) -> None:
    facts = LLAMA_8B | {"gpu_memory_total": 80 * GIB, "model_weights": weights, "max_model_len": 8192.0}
    facts |= {"--tensor-parallel-size": tensor_parallel, "log": True, "log:kv-memory.gib": 40.0}
    page = f"vllm:kv_cache_usage_perc{{{ON_0}}} {usage}\n{kv_page(10.0, 8192)}"
    assert read("tensor_parallel_size_wanted", page, **facts) == Known(wanted)
    assert read("replicas_wanted", page, **facts) == Known(tensor_parallel / wanted)


def test_without_the_caches_size_the_weights_and_a_third_more_count() -> None:
    facts: dict[str, Value] = {"command": True, "gpu_memory_total": 80 * GIB, "model_weights": 60 * GIB}
    assert read("tensor_parallel_size_wanted", "", **facts, **{"--tensor-parallel-size": 4.0}) == Known(2.0)


ONE_ENGINE = {"engine_cores": 1.0, "workers": 1.0, "coordinators": 0.0}


@pytest.mark.parametrize(
    ("facts", "wanted"),
    [
        ({"api_cpu": 0.95}, 2.0),
        ({"api_cpu": 0.95, "api_servers": 4.0}, 6.0),  # 3.8 / 0.7
        ({"api_cpu": 0.95, "api_servers": 4.0, "cores_usable": 7.0} | ONE_ENGINE, 5.0),
        ({"api_cpu": 0.95, "api_servers": 1.0, "cores_usable": 3.0} | ONE_ENGINE, 1.0),
    ],
)
def test_no_more_api_servers_than_cores(facts: dict[str, Value], wanted: float) -> None:
    assert read("api_servers_wanted", "", **facts) == Known(wanted)


@pytest.mark.parametrize(
    ("most", "facts", "wanted"),
    [
        (100, {"--max-num-seqs": 200.0}, 200.0),
        (100, {"--max-num-seqs": 4096.0}, 1024.0),
        (2000, {"--max-num-seqs": 4096.0}, 2000.0),
        (100, {}, 104.0),  # not known: what was seen
    ],
)
def test_the_graph_that_covers_the_batch(most: int, facts: dict[str, Value], wanted: float) -> None:
    page = f"vllm:num_requests_running{{{ON_0}}} {most}\n"
    seen = shipped_catalogue().snapshot(window(page), {name: Known(value) for name, value in facts.items()})
    assert seen.read("largest_graph_wanted", ENGINE)[1] == Known(wanted)


def busy(at: float, batch: float = 64, prompts: float = 0, step: float = 0.01, **more: float) -> str:
    """A page after so many seconds of steps that take `step`, each of a token for `batch` requests of 1,000 tokens."""
    steps = at / step
    counts = {
        "iteration_tokens_total_count": steps,
        "generation_tokens_total": steps * batch,
        "prompt_tokens_total": steps * prompts,
        "inter_token_latency_seconds_sum": steps * batch * step,
        "inter_token_latency_seconds_count": steps * batch,
        "request_prompt_tokens_sum": 9000.0,
        "request_prompt_tokens_count": 10.0,
        "request_generation_tokens_sum": 2000.0,
        "request_generation_tokens_count": 10.0,
        "kv_cache_usage_perc": 0.5,
    } | {name: at * rate for name, rate in more.items()}
    return "".join(f"vllm:{name}{{{ON_0}}} {value}\n" for name, value in counts.items())


LLAMA_ON_H100 = LLAMA_8B | {
    "gpu_bandwidth": 3350e9,
    "gpu_flops": 989e12,
    "gpus": 1.0,
    "model_weights": 16.06e9,
    "parameters": 8.03e9,
    "expert_parameters": 0.0,
    "parameters_used": 7.505e9,
    "model_experts": 0.0,
    "experts_per_token": 0.0,
}


def test_decoding_of_the_memory_bandwidth_bound() -> None:
    pages = busy(0), busy(2)
    weights, kv = 16.06e9 - 2 * 0.525e9, 64 * 1008 * 131_072.0
    found = read("decode_bound", *pages, **LLAMA_ON_H100)
    assert isinstance(found, Known)
    assert found.value == pytest.approx((weights + kv) / 3350e9)  # 7 ms
    found = read("decode_of_bound", *pages, **LLAMA_ON_H100)
    assert isinstance(found, Known)
    assert found.value == pytest.approx((weights + kv) / 3350e9 / 0.01)
    logged = LLAMA_ON_H100 | {"log": True, "log:model-loaded.gib": 15.0}
    found = read("weights_read_per_gpu", *pages, **logged)
    assert isinstance(found, Known)
    assert found.value == pytest.approx(15 * GIB - 2 * 0.525e9)


def test_computing_of_the_compute_bound() -> None:
    found = read("compute_of_bound", busy(0, prompts=4000, step=0.1), busy(2, prompts=4000, step=0.1), **LLAMA_ON_H100)
    assert isinstance(found, Known)
    assert found.value == pytest.approx(2 * 7.505e9 * 4064 / 0.1 / 989e12)  # 62 %


def test_the_experts_that_a_step_reads() -> None:
    # Qwen3 30B-A3B: 128 experts, of which a token chooses 8
    qwen: dict[str, Value] = LLAMA_ON_H100 | {
        "model_weights": 61e9,
        "parameters": 30.5e9,
        "expert_parameters": 29e9,
        "parameters_used": 30.5e9 - 29e9 * 120 / 128,
        "model_experts": 128.0,
        "experts_per_token": 8.0,
    }
    alone = read("weights_read_per_gpu", busy(0, batch=1), busy(2, batch=1), **qwen)
    full = read("weights_read_per_gpu", busy(0, batch=500), busy(2, batch=500), **qwen)
    assert isinstance(alone, Known)
    assert isinstance(full, Known)
    assert alone.value == pytest.approx(61e9 * (1 - 29 / 30.5 * 120 / 128))
    assert full.value == pytest.approx(61e9)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"--pipeline-parallel-size": 2.0}, id="stages"),
        pytest.param({"--cpu-offload-gb": 4.0}, id="offloaded weights"),
        pytest.param({"--quantization": "fp8"}, id="weights that shrink while they load"),
        pytest.param({"model_weights": 32e9}, id="weights in 32 bits, which are loaded in 16"),
        pytest.param({"gpu_bandwidth": 300e9}, id="faster than the bound: something is not as assumed"),
        pytest.param({"model_experts": 128.0, "expert_parameters": 7e9, "--data-parallel-size": 2.0}, id="experts"),
    ],
)
def test_where_the_bound_does_not_hold_it_is_unknown(changes: dict[str, Value]) -> None:
    assert isinstance(read("decode_of_bound", busy(0), busy(2), **LLAMA_ON_H100), Known)
    assert isinstance(read("decode_of_bound", busy(0), busy(2), **LLAMA_ON_H100 | changes), Unknown)


def test_with_speculation_the_bound_is_unknown() -> None:
    drafts = f"vllm:spec_decode_num_drafts_total{{{ON_0}}} 5\n"
    assert isinstance(read("decode_of_bound", busy(0) + drafts, busy(2) + drafts, **LLAMA_ON_H100), Unknown)


def test_vllms_own_estimate_goes_first() -> None:
    on = {
        "estimated_read_bytes_per_gpu_total": 2e12,
        "estimated_write_bytes_per_gpu_total": 1e11,
        "estimated_flops_per_gpu_total": 98.9e12,
    }
    found = read("decode_of_bound", busy(0, **on), busy(2, **on), **LLAMA_ON_H100)
    assert isinstance(found, Known)
    assert found.value == pytest.approx(2.1 / 3.35)
    found = read("compute_of_bound", busy(0, **on), busy(2, **on), **LLAMA_ON_H100)
    assert isinstance(found, Known)
    assert found.value == pytest.approx(0.1)
    off = dict.fromkeys(on, 0.0)  # the counters without --enable-mfu-metrics
    assert read("decode_of_bound", busy(0, **off), busy(2, **off), **LLAMA_ON_H100) == read(
        "decode_of_bound", busy(0), busy(2), **LLAMA_ON_H100
    )


@pytest.mark.parametrize("lacking", ["gpu_bandwidth", "parameters", "model_weights", "command"])
def test_what_the_bound_needs(lacking: str) -> None:
    facts = {name: value for name, value in LLAMA_ON_H100.items() if name != lacking}
    assert isinstance(read("decode_of_bound", busy(0), busy(2), **facts), Unknown)


# ---- the size of the gain


@pytest.mark.parametrize(
    ("signal", "facts", "gain"),
    [
        ("throttled_gain", {"cpu_throttled_share": 0.9, "cpu_throttled_cores": 0.5}, 2.0),
        ("throttled_gain", {"cpu_throttled_share": 0.2, "cpu_throttled_cores": 6.0}, 1.25),
        ("throttled_gain", {"cpu_throttled_share": 0.2}, 1.25),
        ("throttled_gain", {"cpu_throttled_share": 1.0, "cpu_throttled_cores": 3.0}, None),  # all the time: no bound
        ("throttled_gain", {"cpu_throttled_cores": 0.5}, None),
        ("gpu_clock_gain", {"gpu_busy_clock_share": 0.5}, 2.0),
        ("gpu_clock_gain", {"gpu_clock_share": 0.5}, None),  # that leaves out what is held down
        ("cpu_clock_gain", {"cpu_frequency_share": 0.8}, 1.25),
        ("api_servers_gain", {"api_cpu": 1.0, "api_servers": 1.0}, 2.0),
        ("latency_targets", {}, 0.0),
        ("latency_targets", {"slo_itl": 0.05}, 1.0),
    ],
)
def test_what_a_cause_costs_at_most(signal: str, facts: dict[str, Value], gain: float | None) -> None:
    found = read(signal, "", **facts)
    assert isinstance(found, Known) is (gain is not None)
    if isinstance(found, Known):
        assert found.value == pytest.approx(gain)


def test_a_batch_grows_at_most_to_what_is_in_flight() -> None:
    def page(waiting: int, queued: float) -> str:
        return (
            f"vllm:num_requests_waiting{{{ON_0}}} {waiting}\n"
            f"vllm:request_queue_time_seconds_sum{{{ON_0}}} {queued}\nvllm:preemptions{{{ON_0}}} 0\n"
        )

    running = 3  # in RUNNING
    assert read("batch_gain", page(6, 0), page(6, 0)) == Known(1 + 6 / running)
    # Seen between two bursts with an empty queue, but requests had waited 18 s in the 2 s.
    assert read("batch_gain", page(0, 0), page(0, 18)) == Known(1 + 9 / running)
    assert read("batch_gain", page(0, 0), page(0, 0)) == Known(1.0)


def test_drafts_cost_what_they_draft_and_check() -> None:
    def page(drafts: int) -> str:
        return (
            f"vllm:spec_decode_num_drafts_total{{{ON_0}}} {drafts}\n"
            f"vllm:spec_decode_num_draft_tokens_total{{{ON_0}}} {drafts * 4}\n"
            f"vllm:spec_decode_num_accepted_tokens_total{{{ON_0}}} {drafts * 0.5}\n"
        )

    assert read("draft_gain", page(0), page(100)) == Known(9 / 1.5)


def test_an_even_spread_gains_no_more_than_the_busiest_engine_has() -> None:
    pages = f"vllm:num_requests_running{{{ON_0}}} 30\nvllm:num_requests_running{{{ON_1}}} 10\n"
    waiting = f"vllm:num_requests_waiting{{{ON_0}}} %d\nvllm:num_requests_waiting{{{ON_1}}} 0\n"
    assert snapshot(pages + waiting % 0).read("spread_gain", ENGINE)[1] == Known(1.5)
    assert snapshot(pages + waiting % 60).read("spread_gain", ENGINE)[1] == Known(2.5)


# ---- where the time of a request goes


def test_the_time_of_a_request_outside_the_engine() -> None:
    def page(requests: int, whole: float, queued: float, computed: float) -> str:
        sums = {"e2e_request_latency": whole, "request_queue_time": queued, "request_inference_time": computed}
        told = [
            f"vllm:{name}_seconds_sum{{{ON_0}}} {total}\nvllm:{name}_seconds_count{{{ON_0}}} {requests}\n"
            for name, total in sums.items()
        ]
        return f"vllm:request_success_total{{{ON_0}}} {requests}\n" + "".join(told)

    pages = [page(100, 50, 1, 40), page(120, 130, 3, 58)]
    assert read("outside_engine_time", *pages) == Known(3.0, origin="computed")
    assert read("outside_engine_share", *pages) == Known(0.75, origin="computed")
    assert read("outside_engine_time", page(100, 50, 1, 40), page(109, 80, 3, 50)).__class__ is Unknown  # too few


# ---- servers that generate nothing


def counted(requests: int, generated: int, steps: int, ended: str = "stop") -> str:
    return (
        f'vllm:request_success_total{{{ON_0},finished_reason="{ended}"}} {requests}\n'
        f"vllm:generation_tokens_total{{{ON_0}}} {generated}\nvllm:prompt_tokens_total{{{ON_0}}} {requests * 20}\n"
        f"vllm:iteration_tokens_total_count{{{ON_0}}} {steps}\n"
    )


@pytest.mark.parametrize(
    ("pages", "facts", "expected"),
    [
        pytest.param((counted(2560, 0, 10), counted(5120, 0, 20)), {}, 1.0, id="by what it counted"),
        pytest.param((counted(9, 0, 9), counted(9, 0, 9)), {}, None, id="too few requests"),
        pytest.param((counted(90, 0, 9, "abort"), counted(99, 0, 9, "abort")), {}, None, id="all were given up"),
        pytest.param((counted(90, 90, 9), counted(99, 99, 9)), {}, 0.0, id="one token each"),
        pytest.param((counted(0, 0, 0), counted(0, 0, 0)), {"--runner": "pooling", "--task": "auto"}, 1.0, id="runner"),
        pytest.param((counted(0, 0, 0), counted(0, 0, 0)), {"--runner": "auto", "--task": "embed"}, 1.0, id="task"),
        pytest.param((counted(0, 0, 0), counted(0, 0, 0)), {"--runner": "auto", "--task": "auto"}, 0.0, id="neither"),
    ],
)
def test_whether_a_server_generates(pages: tuple[str, str], facts: dict[str, Value], expected: float | None) -> None:
    found = read("pooling", *pages, **facts)
    assert (found.value if isinstance(found, Known) else None) == expected


def test_the_texts_of_a_step() -> None:
    pages = (counted(2560, 0, 10), counted(5120, 0, 20))
    assert read("texts_per_step", *pages) == Known(256.0, origin="computed")
    assert read("texts_cap", *pages) == Known(256.0, origin="computed")

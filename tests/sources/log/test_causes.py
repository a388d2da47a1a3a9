"""How servers end, in the words of vLLM, torch, SLURM, Kubernetes and the kernel: why, in which part, by whom."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.sources.log.test_runs import ENGINE_DEAD, LogFolder, busy, dead, fact, record, start, stats, stop

SITE = "/usr/lib/python3.12/site-packages"
WORKER = "Worker_TP1 pid=302"
ENGINE = "EngineCore pid=200"
SERVER = "APIServer pid=100"
OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 1 has a total capacity of 79.18 GiB."
)


@pytest.fixture
def log(tmp_path: Path) -> LogFolder:
    return LogFolder(tmp_path)


def frames(*places: str) -> list[str]:
    """Lines of a traceback: "vllm/v1/worker/gpu_worker.py:load_model" is a function of a file."""
    lines = ["Traceback (most recent call last):"]
    for place in places:
        path, _, function = place.partition(":")
        lines += [f'  File "{SITE}/{path}", line 77, in {function}', f"    self.{function}()", "    ^^^^^^^^^^^^"]
    return lines


def said(who: str, lines: Sequence[str], at: float = 20, source: str = "core.py:1510") -> list[str]:
    return [record(at, line, who, "ERROR", source) for line in lines]


def bare(who: str, lines: Sequence[str]) -> list[str]:
    return [f"({who}) {line}" for line in lines]


def failed_start(*places: str, cause: Sequence[str], worker: bool = True, at: float = 20) -> list[str]:
    """A start in which a worker raised; all that follows only repeats that."""
    lines = start(0)[:5]
    inner = [*frames("vllm/v1/executor/multiproc_executor.py:worker_main", *places), *cause]
    if worker:
        lines += said(WORKER, ["WorkerProc failed to start.", *inner], at, "multiproc_executor.py:953")
        outer = "Exception: WorkerProc initialization failed due to an exception in a background process."
        inner = [*frames("vllm/v1/engine/core.py:run_engine_core"), outer]
    lines += said(ENGINE, ["EngineCore failed to start.", *inner], at + 1)
    lines += bare(SERVER, frames("vllm/entrypoints/cli/serve.py:cmd"))
    lines += bare(
        SERVER, ["RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"]
    )
    return lines


IN_WORKER = "vllm/v1/worker/gpu_worker.py"
IN_RUNNER = "vllm/v1/worker/gpu_model_runner.py"
IN_CORE = "vllm/v1/engine/core.py:_initialize_kv_caches"


@pytest.mark.parametrize(
    ("places", "stage"),
    [
        ((f"{IN_WORKER}:init_device", "vllm/distributed/parallel_state.py:init_distributed_environment"), "devices"),
        ((f"{IN_WORKER}:load_model", "vllm/model_executor/layers/linear.py:__init__"), "weights"),
        ((IN_CORE, f"{IN_WORKER}:determine_available_memory", f"{IN_RUNNER}:_dummy_run"), "memory profile"),
        (
            (IN_CORE, f"{IN_WORKER}:determine_available_memory", "torch/_inductor/compile_fx.py:compile_fx"),
            "compilation",
        ),
        ((IN_CORE, f"{IN_RUNNER}:initialize_kv_cache", f"{IN_RUNNER}:_allocate_kv_cache_tensors"), "KV cache"),
        ((IN_CORE, f"{IN_WORKER}:compile_or_warm_up_model", f"{IN_RUNNER}:capture_model"), "graph capture"),
        ((IN_CORE, f"{IN_WORKER}:compile_or_warm_up_model", f"{IN_RUNNER}:_dummy_sampler_run"), "warm-up"),
    ],
)
def test_the_part_of_a_start_that_failed(places: Sequence[str], stage: str, log: LogFolder) -> None:
    run = log.run(failed_start(*places, cause=[OOM]))
    assert run.death is not None
    assert (run.death.cause, run.death.stage, run.death.process) == (OOM, stage, "Worker_TP1")
    assert fact(run, "death_stage") == stage


def test_compiled_code_that_runs_is_no_compilation(log: LogFolder) -> None:
    places = (
        f"{IN_WORKER}:determine_available_memory",
        "vllm/compilation/decorators.py:__call__",
        "torch/_dynamo/eval_frame.py:_fn",
        "torch/_inductor/output_code.py:__call__",
    )
    run = log.run(failed_start(*places, cause=[OOM]))
    assert run.death is not None
    assert run.death.stage == "memory profile"


MODEL_TYPE = (
    "The checkpoint you are trying to load has model type `tiny4` but Transformers does not recognize this "
    "architecture. This could be because of an issue with the checkpoint."
)
DIRECT = "The above exception was the direct cause of the following exception:"
HANDLING = "During handling of the above exception, another exception occurred:"


@pytest.mark.parametrize(
    ("lines", "cause"),
    [
        pytest.param(
            [
                *frames("torch/distributed/distributed_c10d.py:barrier"),
                "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error",
            ],
            "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, unhandled system error",
            id="nccl",
        ),
        pytest.param(
            [
                *frames("torch/nn/modules/module.py:_call_impl"),
                "RuntimeError: The following operation failed in the TorchScript interpreter.",
                "Traceback of TorchScript (most recent call last):",
                '  File "<string>", line 3, in forward',
                "RuntimeError: nvrtc: error: invalid value for --gpu-architecture (-arch)",
            ],
            "RuntimeError: nvrtc: error: invalid value for --gpu-architecture (-arch)",
            id="torchscript",
        ),
        pytest.param(
            [
                *frames("transformers/models/auto/configuration_auto.py:from_pretrained"),
                "KeyError: 'tiny4'",
                "",
                HANDLING,
                "",
                *frames("vllm/transformers_utils/config.py:get_config"),
                f"ValueError: {MODEL_TYPE}",
            ],
            f"ValueError: {MODEL_TYPE}",
            id="what a lookup came to",
        ),
        pytest.param(
            [
                *frames("requests/models.py:raise_for_status"),
                "requests.exceptions.HTTPError: 404 Client Error: Not Found for url: https://huggingface.co/acme/tiny",
                "",
                DIRECT,
                "",
                *frames("transformers/utils/hub.py:cached_files"),
                "OSError: acme/tiny is not a local folder and is not a valid model identifier listed on 'https://hf.co'",
            ],
            "OSError: acme/tiny is not a local folder and is not a valid model identifier listed on 'https://hf.co'",
            id="hub",
        ),
        pytest.param(
            [
                *frames("vllm/v1/worker/gpu_worker.py:load_model"),
                "AssertionError",
            ],
            "AssertionError in gpu_worker.py, load_model",
            id="without a word",
        ),
        pytest.param(
            [
                *frames("torch/cuda/__init__.py:_lazy_init"),
                "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
                "CUDA kernel errors might be asynchronously reported at some other API call.",
                "For debugging consider passing CUDA_LAUNCH_BLOCKING=1",
                "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.",
                "",
                DIRECT,
                "",
                *frames("vllm/v1/worker/gpu_worker.py:execute_model"),
                "RuntimeError: the step cannot be finished",
            ],
            "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
            id="of several lines",
        ),
    ],
)
def test_which_exception_of_a_chain(lines: Sequence[str], cause: str, log: LogFolder) -> None:
    first = frames("vllm/v1/executor/multiproc_executor.py:worker_main")
    run = log.run([
        *start(0)[:5],
        *said(WORKER, ["WorkerProc failed to start.", *lines], source="multiproc_executor.py:953"),
        *said(ENGINE, ["EngineCore failed to start.", *first, "Exception: WorkerProc initialization failed due to an"]),
    ])  # fmt: skip
    assert run.death is not None
    assert run.death.cause == cause


def test_a_message_that_goes_on_in_the_next_line(log: LogFolder) -> None:
    lines = [
        "EngineCore failed to start.",
        *frames(f"{IN_WORKER}:load_model"),
        "ValueError: This model cannot be served with these settings. Reasons: ",
        "the kernel requires capability 90, this GPU has 89",
    ]
    run = log.run([*start(0)[:5], *said(ENGINE, lines)])
    assert run.death is not None
    assert str(run.death.cause).endswith("Reasons: the kernel requires capability 90, this GPU has 89")


def test_a_known_message_that_goes_on_in_the_next_line(log: LogFolder) -> None:
    kernel = "Failed to find a kernel that can implement the WNA16 linear layer. Reasons:"
    lines = [
        "EngineCore failed to start.",
        *frames(f"{IN_WORKER}:load_model"),
        f"ValueError: {kernel} ",
        "CutlassW4A8LinearKernel requires capability 90, current compute  capability is 89",
    ]
    run = log.run([*start(0)[:5], *said(ENGINE, lines)])
    assert run.death is not None
    assert (run.death.stage, fact(run, "log:quantization-not-here")) == ("weights", 1)
    assert "current compute  capability is 89" in str(run.death.cause)


def test_of_eight_workers_that_write_at_once(log: LogFolder) -> None:
    """Each line of each traceback is a record of its own, and they take turns."""
    lines = ["WorkerProc failed to start.", *frames(*[f"vllm/model_executor/layer{n}.py:forward" for n in range(12)])]
    workers = [said(f"Worker_TP{rank} pid={300 + rank}", [*lines, OOM], source="m.py:953") for rank in range(8)]
    run = log.run([*start(0)[:5], *(line for turn in zip(*workers, strict=True) for line in turn)])
    assert run.death is not None
    assert run.death.cause == OOM


def test_a_traceback_of_another_process_tells_what_a_wrapper_does_not(log: LogFolder) -> None:
    traced = bare("RayWorkerWrapper pid=7", [*frames("vllm/worker/worker.py:execute_model"), "ValueError: bad block 7"])
    wrapper = [
        "EngineCore encountered a fatal error.",
        *frames("a.py:b"),
        "RuntimeError: RPC call to sample timed out.",
    ]
    run = log.run([*start(0), *busy(40, 90), *traced, *said(ENGINE, wrapper, 95), *dead(96)])
    assert run.death is not None
    assert run.death.cause == "ValueError: bad block 7"


def test_what_a_request_failed_of_long_before_is_no_cause(log: LogFolder) -> None:
    asgi = bare(SERVER, ["ERROR:    Exception in ASGI application", *frames("a.py:b"), "RuntimeError: no such adapter"])
    gone = record(595, "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.", SERVER, "ERROR")
    run = log.run([*start(0), *busy(40, 90), *asgi, *busy(100, 590), gone])
    assert run.death is not None
    assert run.death.cause == "Engine core proc EngineCore_DP0 died unexpectedly"
    assert str(fact(run, "death_cause")).endswith("the log shows no exception")
    assert fact(run, "request_failures") == 1


def test_the_http_servers_own_end_follows_the_engines(log: LogFolder) -> None:
    """It shuts itself down once its engine is gone: nobody told it to."""
    gone = record(95, "Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.", SERVER, "ERROR")
    after = bare(SERVER, ["INFO:     Shutting down", "INFO:     Application shutdown complete."])
    run = log.run([*start(0), *busy(40, 90), gone, *dead(95), *after])
    assert run.death is not None
    assert not run.stopped
    assert log.run([*start(0), *busy(40, 90), *stop(95), gone, *dead(95), *after]).death is None


def test_statistics_after_a_death_are_of_before(log: LogFolder) -> None:
    """The line is of the ten seconds that end with it."""
    fatal = said(ENGINE, ["EngineCore encountered a fatal error.", *frames("a.py:b"), OOM], 95)
    run = log.run([*start(0), *busy(40, 90), *fatal, *dead(96), stats(100, generation=180.0)])
    assert run.death is not None
    assert run.death.cause == OOM
    goes_on = log.run([*start(0), *busy(40, 90), *fatal, *busy(100, 200)])
    assert goes_on.death is None


def test_a_kernels_assertion_comes_before_the_abort(log: LogFolder) -> None:
    asserted = [
        f"(Worker_TP0 pid=301) /pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:94: operator(): block: [{n},0,0], "
        "thread: [64,0,0] Assertion `-sizes[i] <= index && index < sizes[i]` failed."
        for n in range(300)
    ]
    run = log.run([*start(0), *busy(40, 90), *asserted, "(Worker_TP0 pid=301) Fatal Python error: Aborted", *dead(92)])
    assert run.death is not None
    assert "IndexKernel.cu:94" in str(run.death.cause)


@pytest.mark.parametrize(
    ("last", "cause"),
    [
        (["Killed"], "Killed"),
        (["serve.sh: line 12:  4711 Killed                  vllm serve /models/tiny"], "Killed"),
        (["slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been killed."],
         "Detected 1 oom_kill event in StepId=4711.0. Some of the step tasks have been killed."),
        (["srun: error: node07: task 0: Killed"], "Killed"),
        (["vllm-1 exited with code 137"], "exited with code 137"),
        (["command terminated with exit code 137"], "command terminated with exit code 137"),
        (["Jan 20 10:50:47 host systemd[1]: vllm.service: A process of this unit has been killed by the OOM killer."],
         "A process of this unit has been killed by the OOM killer"),
        (["(raylet) 1 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed"],
         "1 Workers (tasks / actors) killed due to memory pressure (OOM)"),
    ],
)  # fmt: skip
def test_a_server_that_was_killed_has_no_last_word_of_its_own(last: Sequence[str], cause: str, log: LogFolder) -> None:
    run = log.run([*start(0), *busy(40, 90), *last])
    assert run.death is not None
    assert run.death.cause == cause
    assert log.run([*start(0), *busy(40, 90), *last, *busy(100, 200)]).death is None


def test_what_a_shell_says_after_a_death_is_not_its_cause(log: LogFolder) -> None:
    """vLLM 0.8 ends its own processes by SIGKILL."""
    fatal = record(95, "Got fatal signal from worker processes, shutting down. See stack trace above.", "", "CRITICAL")
    run = log.run([*start(0), *busy(40, 90), fatal, "Killed"])
    assert run.death is not None
    assert run.death.cause is None
    assert fact(run, "death_killed") is False


@pytest.mark.parametrize(
    ("last", "by"),
    [
        (["slurmstepd: error: *** JOB 4711 ON node07 CANCELLED AT 2026-01-20T10:50:47 DUE TO TIME LIMIT ***"],
         "SLURM cancelled the job: TIME LIMIT"),
        (["slurmstepd: error: *** STEP 4711.0 ON node07 CANCELLED AT 2026-01-20T10:50:47 ***"],
         "SLURM cancelled the job"),
        (["slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-20T10:50:47 DUE TO PREEMPTION ***", *stop(95)],
         "SLURM cancelled the job: PREEMPTION"),
        (stop(95), "a signal: SIGTERM"),
        (["^CINFO:     Shutting down", *frames("vllm/entrypoints/cli/serve.py:cmd"), "KeyboardInterrupt"],
         "Ctrl-C (KeyboardInterrupt)"),
        (["Terminated"], "SIGTERM"),
        (["vllm-1 exited with code 143"], "its container was told to stop (SIGTERM)"),
        (["2026-01-20 10:50:47,120 INFO stopped: vllm (terminated by SIGTERM)"],
         "its supervisor stopped it: terminated by SIGTERM"),
        (["Warning  Evicted  2m  kubelet  The node was low on resource: memory. Threshold quantity: 100Mi"],
         "its pod was evicted: The node was low on resource: memory"),
    ],
)  # fmt: skip
def test_who_stopped_it(last: Sequence[str], by: str, log: LogFolder) -> None:
    run = log.run([*start(0), *busy(40, 90), *last])
    assert (run.stopped, run.death, run.ended_by) == (True, None, by)


def test_a_job_that_is_cancelled_because_its_server_died(log: LogFolder) -> None:
    fatal = said(ENGINE, ["EngineCore encountered a fatal error.", *frames("a.py:b"), OOM], 95)
    step = "slurmstepd: error: *** STEP 4711.0 ON node07 CANCELLED AT 2025-11-20T10:01:37 ***"
    run = log.run([*start(0), *busy(40, 90), *fatal, *dead(96), step])
    assert run.death is not None
    assert (run.death.cause, run.ended_by) == (OOM, None)


def test_a_command_that_argparse_refuses(log: LogFolder) -> None:
    run = log.run([
        "usage: vllm serve [model_tag] [options]",
        "vllm serve: error: unrecognized arguments: --enable-chunked-prefil",
    ])  # fmt: skip
    assert run.death is not None
    assert run.death.stage == "configuration"
    assert run.death.cause == "vllm serve: error: unrecognized arguments: --enable-chunked-prefil"


@pytest.mark.parametrize(
    "line",
    [
        "/usr/bin/python3: No module named vllm",
        "/usr/bin/python3: Error while finding module specification for 'vllm.entrypoints.openai.api_server' "
        "(ModuleNotFoundError: No module named 'vllm')",
        "serve.sh: line 3: vllm: command not found",
    ],
)
def test_a_vllm_that_is_not_installed(line: str, log: LogFolder) -> None:
    run = log.run(["nohup: ignoring input", line])
    assert run.death is not None
    assert (run.death.cause, run.death.stage) == (line, "configuration")


def test_what_a_compiler_said_and_not_its_exit_code(log: LogFolder) -> None:
    header = "/tmp/tmpq1/main.c:5:10: fatal error: Python.h: No such file or directory"
    lines = [
        "EngineCore failed to start.",
        *frames(f"{IN_WORKER}:determine_available_memory"),
        "torch._inductor.exc.InductorError: CalledProcessError: Command '['gcc', 'main.c']' returned non-zero exit "
        "status 1.",
    ]
    run = log.run([*start(0)[:6], header, *said(ENGINE, lines)])
    assert run.death is not None
    assert (run.death.cause, run.death.stage) == (header, "compilation")
    [alone] = log.runs([*start(0)[:6], *said(ENGINE, lines)])
    assert alone.death is not None
    assert "returned non-zero" in str(alone.death.cause)


def test_v0_says_that_its_engines_process_failed_to_start(log: LogFolder) -> None:
    begun = [line.replace("V1 LLM engine (v0.32.0)", "LLM engine (v0.6.4)") for line in start(0, prefixed=False)[:5]]
    engine = [*frames("vllm/worker/worker.py:load_model"), OOM]
    server = [
        *frames("vllm/scripts.py:serve"),
        "RuntimeError: Engine process failed to start. See stack trace for the root cause.",
    ]
    run = log.run([*begun, "Process SpawnProcess-1:", *engine, *server])
    assert run.death is not None
    assert (run.death.cause, run.death.stage) == (OOM, "weights")


def test_a_worker_that_went_without_a_word(log: LogFolder) -> None:
    gone = record(
        95, "Worker proc VllmWorker-1 died unexpectedly, shutting down executor.", ENGINE, "ERROR", "m.py:231"
    )
    waited = frames("vllm/distributed/device_communicators/shm_broadcast.py:acquire_read")
    fatal = said(ENGINE, ["EngineCore encountered a fatal error.", *waited, "RuntimeError: cancelled"], 95)
    run = log.run([*start(0), *busy(40, 90), gone, *fatal, *dead(96)])
    assert run.death is not None
    assert run.death.cause == "Worker proc VllmWorker-1 died unexpectedly"
    assert fact(run, "death_told") is False


def test_a_script_that_embeds_the_engine_and_fails_in_its_start(log: LogFolder) -> None:
    """No process of its own, and no line that says that it is dead: the traceback is the last word."""
    traced = [*frames("vllm/worker/worker.py:load_model"), "ValueError: no such expert"]
    run = log.run([*start(0, prefixed=False)[4:5], *traced])
    assert run.death is not None
    assert (run.death.cause, run.death.stage) == ("ValueError: no such expert", "weights")
    survived = log.run([*start(0, prefixed=False)[4:5], *traced, *start(0, prefixed=False)[5:]])
    assert survived.death is None


def test_a_program_that_fails_beside_its_embedded_engine(log: LogFolder) -> None:
    traced = bare("TaskRunner pid=9", [*frames("torch/utils/data/dataloader.py:_next_data"), "RuntimeError: worker 7"])
    assert log.run([*start(0)[4:6], *traced]).death is None


# ---- hangs, and requests that fail -----------------------------------------------------------------------------------


def still(first: int, last: int, running: int = 4, kv_cache: float = 10.0) -> list[str]:
    return [stats(at, running, 0, 0.0, 0.0, kv_cache) for at in range(first, last + 1, 10)]


def test_requests_that_run_and_nothing_moves_to_the_end(log: LogFolder) -> None:
    assert log.run([*start(0), *busy(40, 90), *still(100, 400)]).hung == pytest.approx(310)
    assert fact(log.run([*start(0), *busy(40, 90), *still(100, 400)]), "hung_seconds") == pytest.approx(310)
    assert log.run([*start(0), *busy(40, 90), *still(100, 400), *busy(410, 420)]).hung == 0
    assert log.run([*start(0), *busy(40, 90), *still(100, 400, running=0)]).hung == 0


def test_a_long_prompt_fills_the_kv_cache(log: LogFolder) -> None:
    reading = [stats(at, 1, 0, 0.0, 0.0, at / 10) for at in range(100, 400, 10)]
    assert log.run([*start(0), *busy(40, 90), *reading]).hung == 0


def test_what_hung_in_an_old_part_of_a_log_is_no_end(log: LogFolder) -> None:
    again = [*start(500, 500, 600), *busy(540, 600, who="APIServer pid=500")]
    runs = log.runs([*start(0), *busy(40, 90), *still(100, 400), *again])
    assert [fact(run, "hung_seconds") for run in runs] == [0, 0]


def test_a_call_that_fails_while_the_engine_goes_on(log: LogFolder) -> None:
    lines = ["Invocation of wake_up method failed", *frames("vllm/device_allocator/cumem.py:wake_up"), OOM]
    run = log.run([*start(0), *busy(40, 90), *said(ENGINE, lines, 95, "core.py:1750"), *busy(100, 200)])
    assert run.death is None
    assert fact(run, "request_failure") == OOM.rstrip(".")
    assert fact(run, "log:call-failed.method") == "wake_up"


def test_a_request_that_asks_for_too_much_is_no_failure(log: LogFolder) -> None:
    refused = "vllm.exceptions.VLLMValidationError: This model's maximum context length is 2048 tokens."
    lines = bare(SERVER, ["ERROR:    Exception in ASGI application", *frames("a.py:b"), refused])
    run = log.run([*start(0), *busy(40, 90), *lines, *busy(100, 200)])
    assert fact(run, "request_failures") == 0


def test_two_servers_beside_each_other_are_no_restart(log: LogFolder) -> None:
    other = "APIServer pid=500"
    beside = [*busy(200, 400), *busy(205, 405, who=other)]
    runs = log.runs([*start(0), *busy(40, 90), *start(100, 500, 600), *sorted(beside, key=lambda line: line[-130:])])
    assert [fact(run, "restarts") for run in runs] == [0, 0]


def test_engine_dead_alone_is_no_cause(log: LogFolder) -> None:
    run = log.run([*start(0), *busy(40, 90), *dead(95)])
    assert run.death is not None
    assert run.death.cause is None
    assert ENGINE_DEAD not in str(fact(run, "death_cause"))


# ---- what looks like a death, and is none ----------------------------------------------------------------------------


def test_a_start_that_goes_on_did_not_die_of_what_it_stumbled_over(log: LogFolder) -> None:
    says = "Error retrieving safetensors: Repo id must use alphanumeric chars: '/tiny'."
    retried = said(SERVER, [f"{says}, retrying 1 of 2", says], 1, "repo_utils.py:45")
    failed = bare(SERVER, [*frames("vllm/entrypoints/cli/serve.py:cmd"), "OSError: no vocabulary"])
    run = log.run([*start(0)[:2], *retried, *start(0)[2:8], *failed])
    assert run.death is not None
    assert run.death.cause == "OSError: no vocabulary"
    assert fact(run, "log:model-not-found") == 0
    assert log.run([*start(0)[:2], *retried]).death is not None


def test_what_nobody_waited_for_is_a_consequence(log: LogFolder) -> None:
    torn = ["Task exception was never retrieved", *frames("zmq/_future.py:poll"), "zmq.error.ZMQError: not supported"]
    ended = [*frames("vllm/scripts.py:serve"), "RuntimeError: Engine process failed to start."]
    run = log.run([*start(0, prefixed=False)[:7], *torn, *torn, *ended])
    assert run.death is not None
    assert fact(run, "death_told") is False
    assert "ZMQError" not in str(fact(run, "death_cause"))


def test_the_text_of_a_warning_is_no_death(log: LogFolder) -> None:
    warned = [
        "/x/vllm/connections.py:8: RuntimeWarning: Failed to read commit hash:",
        "No module named 'vllm._version'",
    ]
    runs = log.runs([*start(0, prefixed=False)[:2], *warned, *start(0, prefixed=False)[2:], *busy(40, 90, who="")])
    assert [run.death for run in runs] == [None]
    userwarned = ["/x/torch/a.py:8: UserWarning: torch.OutOfMemoryError: CUDA out of memory."]
    assert log.run([*start(0)[:6], *userwarned]).death is None


def test_a_worker_that_died_and_nothing_after_it(log: LogFolder) -> None:
    gone = "Worker proc VllmWorker-1 died unexpectedly, shutting down executor."
    run = log.run([*busy(40, 90), *said(ENGINE, [gone], 95, "m.py:146"), stats(98), stats(108, 0, 0, 0.0, 0.0)])
    assert run.death is not None
    assert fact(run, "engine_dead") is True
    assert fact(run, "death_told") is False


def test_nccls_wrapper_yields_to_the_cuda_error(log: LogFolder) -> None:
    nccl = "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)"
    traced = said(WORKER, [*frames("vllm/a.py:b"), nccl], 95, "w.py:240")
    watchdog = "[PG ID 2 Rank 3] Process group watchdog thread terminated with exception: CUDA error: "
    access = "CUDA error: an illegal memory access was encountered"
    fatal = [*traced, f"  what():  {watchdog}{access.removeprefix('CUDA error: ')}", *dead(96)]
    run = log.run([*start(0), *busy(40, 90), *fatal])
    assert run.death is not None
    assert run.death.cause is not None
    assert run.death.cause.endswith(access)
    alone = log.run([*start(0), *busy(40, 90), *traced, *dead(96)])
    assert alone.death is not None
    assert alone.death.cause == nccl


def test_an_exception_whose_prefix_is_cut(log: LogFolder) -> None:
    free = "ValueError: Free memory on device (31.44/47.38 GiB) on startup is less than desired GPU memory utilization"
    cut = f"[multiproc_executor.py:492] {free} (0.95, 45.01 GiB). Decrease it."
    outer = "Exception: WorkerProc initialization failed due to an exception in a background process."
    failed = said("", ["EngineCore failed to start.", *frames("vllm/v1/engine/core.py:run_engine_core"), outer])
    run = log.run([cut, *failed])
    assert run.death is not None
    assert str(run.death.cause).startswith(free)
    assert fact(run, "death_told") is True


# ---- in what of the server -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("place", "part"),
    [
        ("vllm/distributed/kv_transfer/kv_connector/v1/lmcache_connector.py:start_load_kv", "KV connector"),
        ("vllm/v1/structured_output/backend_xgrammar.py:compile_grammar", "structured output"),
        ("vllm/v1/worker/gpu_model_runner.py:execute_model", None),
    ],
)
def test_the_part_of_the_server_that_raised_it(place: str, part: str | None, log: LogFolder) -> None:
    lines = [*frames("vllm/v1/engine/core.py:_process_engine_step", place), "ConnectionResetError: [Errno 104] Reset"]
    run = log.run([*start(0), *busy(40, 60), *said(ENGINE, ["EngineCore encountered a fatal error.", *lines], 65)])
    assert run.death is not None
    assert (run.death.stage, run.death.part, fact(run, "death_part")) == ("serving", part, part)


STACK = [
    f'  File "{SITE}/vllm/distributed/device_communicators/pynccl_wrapper.py", line 277 in ncclCommInitRank',
    f'  File "{SITE}/vllm/distributed/device_communicators/pynccl.py", line 99 in __init__',
    f'  File "{SITE}/vllm/v1/worker/gpu_worker.py", line 113 in init_device',
    f'  File "{SITE}/ray/_private/workers/default_worker.py", line 297 in <module>',
]
GONE = ["ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."]


@pytest.mark.parametrize(
    "word",
    [
        "free(): double free detected in tcache 2",
        "malloc(): unaligned tcache chunk detected",
        "double free or corruption (out)",
        "corrupted size vs. prev_size",
        "*** stack smashing detected ***: terminated",
        "terminate called after throwing an instance of 'c10::Error'",
    ],
)
def test_what_libc_says_before_it_aborts_is_the_cause(word: str, log: LogFolder) -> None:
    """vllm-project/vllm#15687: Python says only that it was aborted, Ray only that the actor has died."""
    lines = [word, "*** SIGABRT received at time=1743139179 on cpu 162 ***", "Fatal Python error: Aborted", ""]
    traced = [*frames("vllm/v1/engine/core.py:run_engine_core", "ray/_private/worker.py:get_objects"), *GONE]
    died = said(ENGINE, ["EngineCore failed to start.", *traced], 21)
    run = log.run([*start(0)[:5], *bare(WORKER, [*lines, "Stack (most recent call first):", *STACK, ""]), *died])
    assert run.death is not None
    assert (run.death.cause, run.death.process) == (word.removesuffix(": terminated"), "Worker_TP1")
    assert (run.death.stage, run.death.part) == ("devices", "NCCL")
    assert fact(run, "death_told") is True


def test_what_the_exception_said_goes_before_its_type(log: LogFolder) -> None:
    lines = ["terminate called after throwing an instance of 'c10::Error'", "  what():  CUDA error: misaligned address"]
    run = log.run([*start(0), *busy(40, 60), *bare(ENGINE, [*lines, "Fatal Python error: Aborted"]), *dead(65)])
    assert run.death is not None
    assert run.death.cause == "CUDA error: misaligned address"


def test_an_abort_that_it_survives_is_no_death(log: LogFolder) -> None:
    """Of a helper process, perhaps: it ends nothing by itself."""
    assert log.run([*start(0), *busy(40, 60), "free(): invalid pointer", *busy(70, 90)]).death is None
    assert log.run([*start(0)[:5], "free(): invalid pointer", *start(0)[5:]]).death is None


def test_what_a_step_was_to_compute_tells_that_it_served(log: LogFolder) -> None:
    """vllm-project/vllm#18835: a part of a log, and collect-env's own line of a quarter of an hour later."""
    dumped = record(0, "Dumping input data", "", "ERROR", "dump_input.py:68")
    cause = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    imported = record(800, "Automatically detected platform cuda.", "", source="__init__.py:243")
    step = ["--- Logging error ---", *frames("vllm/v1/engine/core.py:execute_model"), cause]
    run = log.run([dumped, *step, imported, "Collecting environment information...", "PyTorch version: 2.8.0"])
    assert run.death is not None
    assert (run.death.stage, fact(run, "death_phase"), run.last_at) == ("serving", "serving", run.first_at)
    assert fact(log.run(said("", step)), "death_phase") == "serving"  # by its frames


MANY = "ValueError: Chunked MM input disabled but max_tokens_per_mm_item (2496) is larger than max_num_batched_tokens"


def test_what_is_raised_while_the_engine_is_made_is_shown_whole(log: LogFolder) -> None:
    """Also from code that reads requests later on. By the frames alone: a log may have lost what was asked before."""
    own, hidden = "ValueError: some words of vLLM's own", "ValueError: [masked]"
    reads = frames("vllm/entrypoints/cli/serve.py:cmd", "vllm/multimodal/encoder_budget.py:__init__", "/x/own.py:f")
    makes = [*reads[:3], *frames("vllm/v1/engine/async_llm.py:from_vllm_config")[1:], *reads[3:]]
    assert getattr(log.run(bare(SERVER, [*makes, own])).death, "cause", "") == own
    assert getattr(log.run([*start(0)[:3], *bare(SERVER, [*reads, own])]).death, "cause", "") == hidden
    assert getattr(log.run([*start(0), *bare(SERVER, [*reads, own]), *dead(40)]).death, "cause", "") == hidden


def test_one_image_larger_than_the_budget(log: LogFolder) -> None:
    """jethac/dgx-spark-hijinks, a server.log of vLLM 0.20.0."""
    lines = [*frames("vllm/entrypoints/cli/serve.py:cmd"), f"{MANY} (2048). Please increase max_num_batched_tokens."]
    run = log.run([*start(0)[:3], *bare(SERVER, lines)])
    assert [fact(run, f"log:mm-item-above-budget.{name}") for name in ("item", "budget")] == [2496, 2048]
    assert run.death is not None
    assert (run.death.cause or "").startswith(MANY)


def test_a_module_that_is_missing(log: LogFolder) -> None:
    lines = [*frames("ray/dag/compiled_dag_node.py:_init_communicators"), "ModuleNotFoundError: No module named 'cupy'"]
    run = log.run([*start(0), *busy(40, 60), *said(ENGINE, ["EngineCore encountered a fatal error.", *lines], 65)])
    assert (fact(run, "death_lacks_module"), fact(run, "death_module")) == (True, "cupy")
    other = log.run([*start(0), *busy(40, 60), *said(ENGINE, ["EngineCore encountered a fatal error.", OOM], 65)])
    assert (fact(other, "death_lacks_module"), fact(other, "death_module")) == (False, None)


def test_the_programs_of_a_tpu_do_not_fit(log: LogFolder) -> None:
    exhausted = (
        "jax.errors.JaxRuntimeError: RESOURCE_EXHAUSTED: E0101: RuntimeProgramAllocationFailure: Error loading program"
    )
    places = (f"{IN_WORKER}:compile_or_warm_up_model", "tpu_inference/runner/compilation_manager.py:_run_compilation")
    run = log.run(failed_start(*places, cause=[exhausted], worker=False))
    assert run.death is not None
    assert (run.death.cause, run.death.stage, fact(run, "log:xla-exhausted")) == (exhausted, "compilation", 1)


def test_who_answers_requests_has_started(log: LogFolder) -> None:
    """Of a log that starts mid-run a 500 tells that it served; of a whole one its own lines do."""
    lines = said(ENGINE, [*frames("vllm/v1/worker/gpu_worker.py:execute_model"), OOM])
    answer = f'({SERVER}) INFO:     10.1.2.3:40312 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error'
    died = record(22, "AsyncLLM output_handler failed.", SERVER, "ERROR", "async_llm.py:906")
    begun = said(ENGINE, ["EngineCore failed to start."], 21)
    served, starting = log.run([*lines, died, answer]), log.run([*start(0)[:5], *lines, *begun, answer])
    assert served.death is not None
    assert starting.death is not None
    assert (served.death.serving, starting.death.serving) == (True, False)


# ---- stopped while it starts -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "by"),
    [("KeyboardInterrupt: terminated", "SIGTERM"), ("KeyboardInterrupt", "Ctrl-C (KeyboardInterrupt)")],
)
def test_who_stopped_a_start_and_where(word: str, by: str, log: LogFolder) -> None:
    """vLLM's own handler of SIGTERM raises KeyboardInterrupt, too."""
    lines = bare(SERVER, [*frames("vllm/entrypoints/cli/serve.py:cmd"), word])
    run = log.run([*start(0)[:6], *lines])
    assert (run.stopped, run.death, run.ended_by) == (True, None, by)
    assert (run.is_stopped_early, run.stage) == (True, "weights")
    assert (fact(run, "stopped_while_starting"), fact(run, "start_stage")) == (True, "weights")


def test_an_interrupt_is_where_its_frames_are(log: LogFolder) -> None:
    inner = [*frames(f"{IN_WORKER}:determine_available_memory", "torch/_inductor/compile_fx.py:compile_fx")]
    run = log.run([*start(0)[:6], *bare(ENGINE, [*inner, "KeyboardInterrupt"])])
    assert (run.is_stopped_early, run.stage) == (True, "compilation")


def test_one_that_was_up_was_not_stopped_early(log: LogFolder) -> None:
    served = log.run([*start(0), *busy(40, 60), *stop(65)])
    embedded = log.run([*start(0)[:8], "KeyboardInterrupt"])  # a program's engine was ready, and it serves nobody
    assert [run.is_stopped_early for run in (served, embedded)] == [False, False]
    assert [fact(run, "stopped_while_starting") for run in (served, embedded)] == [False, False]


def test_an_exception_without_its_traceback_is_why(log: LogFolder) -> None:
    """As people cut it: the worker's last line, and the engine's word that it failed."""
    said_it = "ValueError: Unsupported draft architecture: TinyDraft"
    failed = said(ENGINE, ["EngineCore failed to start."])
    run = log.run([*said(WORKER, [said_it], 19, "multiproc_executor.py:901"), *failed])
    assert run.death is not None
    assert (run.death.cause, run.death.process) == (said_it, "Worker_TP1")
    assert fact(run, "death_cause") == said_it
    # One that was only reported, or that another part of the server quotes, is none.
    reported = record(19, said_it, WORKER, "WARNING", "multiproc_executor.py:901")
    quoted = record(19, said_it, SERVER, "ERROR", "serving_chat.py:12")
    run = log.run([reported, quoted, *failed])
    assert run.death is not None
    assert run.death.cause is None


NO_BACKEND = (
    "ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(head_size=64, "
    "dtype=torch.bfloat16, kv_cache_dtype=fp8_ds_mla, block_size=64, use_mla=False, has_sink=False, use_sparse=False, "
    "use_mm_prefix=False, use_per_head_quant_scales=False, attn_type=AttentionType.DECODER, has_sliding_window=True). "
    "Reasons: {{FLASH_ATTN: [{0}], TURBOQUANT: [kv_cache_dtype not supported, sliding window not supported]}}."
)


def test_a_cause_keeps_its_reasons(log: LogFolder) -> None:
    refused = NO_BACKEND.format("kv_cache_dtype not supported")
    run = log.run(failed_start(f"{IN_WORKER}:load_model", cause=[refused]))
    cause = str(fact(run, "death_cause"))
    assert cause.startswith("ValueError: No valid attention backend found for cuda with AttentionSelectorConfig(")
    assert "kv_cache_dtype=fp8_ds_mla,… Reasons: {FLASH_ATTN: [kv_cache_dtype not supported]" in cause
    assert len(cause) <= 300
    assert run.death is not None
    assert run.death.stage == "weights"


@pytest.mark.parametrize(
    ("reasons", "alone"),
    [
        ("kv_cache_dtype not supported", "kv_dtype_alone"),
        ("block_size not supported", "block_alone"),
        ("compute capability not supported", "gpu_alone"),
        ("kv_cache_dtype not supported, sparse not supported", None),
    ],
)
def test_which_thing_alone_a_backend_lacks(reasons: str, alone: str | None, log: LogFolder) -> None:
    run = log.run(failed_start(f"{IN_WORKER}:load_model", cause=[NO_BACKEND.format(reasons)]))
    found = [
        n for n in ("kv_dtype_alone", "block_alone", "gpu_alone") if fact(run, f"log:attention-refused.{n}") is True
    ]
    assert found == ([alone] if alone else [])


TOO_SMALL = (
    "ValueError: To serve at least one request with the model's max seq len (100000), (4.26 GiB KV cache is needed, "
    "which is larger than the available KV cache memory (4.25 GiB). Based on the available memory, the estimated"
)


@pytest.mark.parametrize("columns", [100, 119, 160])
def test_an_exception_that_a_terminal_broke_is_joined(columns: int, log: LogFolder) -> None:
    text = f"({ENGINE}) {TOO_SMALL}"
    broken = [text[at : at + columns] for at in range(0, len(text), columns)]
    failed = bare(
        SERVER, ["RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"]
    )
    run = log.run(["```", *broken, "```", *failed])
    assert fact(run, "log:kv-too-small.needed_gib") == 4.26
    assert fact(run, "log:kv-too-small.available_gib") == 4.25
    assert "```" not in str(fact(run, "death_cause"))


def test_what_another_process_prints_below_is_not_joined(log: LogFolder) -> None:
    text = f"({ENGINE}) {TOO_SMALL}"[:119]
    failed = bare(
        SERVER, ["RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}"]
    )
    other = "KV cache memory 9.99 GiB KV cache is needed"
    run = log.run([text, f"({SERVER}) {other}", *failed])
    assert fact(run, "log:kv-too-small.needed_gib") is None
    run = log.run([text, f"{other}{'.' * 119}", *failed])  # longer than the line above: no terminal's column
    assert fact(run, "log:kv-too-small.needed_gib") is None


def test_the_warm_up_of_the_sampler_is_a_part_of_its_own(log: LogFolder) -> None:
    places = (IN_CORE, f"{IN_WORKER}:compile_or_warm_up_model", f"{IN_RUNNER}:_dummy_sampler_run")
    run = log.run(failed_start(*places, cause=[OOM]))
    assert (fact(run, "death_stage"), fact(run, "death_part")) == ("warm-up", "sampler")

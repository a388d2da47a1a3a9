"""The parts of a server's work: which frame is whose, and that the file is read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_doctor.model.errors import DocumentError
from vllm_doctor.model.profile import Frame
from vllm_doctor.rules import parts

PARTS = parts.load()
MAIN = "<module> (vllm)"


def of(*frames: str) -> parts.Assigned:
    """Of a stack, its outermost frame first: "schedule vllm/v1/core/sched/scheduler.py"."""
    return PARTS.of([Frame(*frame.split(" ", 1)) for frame in frames])


SCHEDULE = "Scheduler.schedule vllm/v1/core/sched/scheduler.py"
STEP = "EngineCore.step vllm/v1/engine/core.py"
OUTPUTS = "OutputProcessor.process_outputs vllm/v1/engine/output_processor.py"
WAIT = "Condition.wait threading.py"
HASH = "hash_block_tokens vllm/v1/core/kv_cache_utils.py"
DECODE = "FastIncrementalDetokenizer.decode_next vllm/v1/engine/detokenizer.py"
LOGPROBS = "LogprobsProcessor.update vllm/v1/engine/logprobs.py"
CONVERT = "convert vllm/tokenizers/detokenizer_utils.py"
ENCODE = "TokenizersBackend._encode_plus transformers/tokenization_utils_tokenizers.py"
PARSE = "extract vllm/tool_parsers/xlam_tool_parser.py"
RESPONSE = "MultiprocExecutor.collective_rpc.<locals>.get_response vllm/v1/executor/multiproc_executor.py"
OUTPUT = "AsyncGPUModelRunnerOutput.get_output vllm/v1/worker/gpu_model_runner.py"
SYNCHRONIZE = "Event.synchronize torch/cuda/streams.py"
BUSY_LOOP = "DPEngineCoreProc.run_busy_loop vllm/v1/engine/core.py"
EXECUTE = "GPUModelRunner.execute_model vllm/v1/worker/gpu_model_runner.py"
GLOO = "all_reduce torch/distributed/distributed_c10d.py"
DAG = "RayDistributedExecutor.execute_model vllm/v1/executor/ray_distributed_executor.py"
REF = "CompiledDAGRef.get ray/experimental/compiled_dag_ref.py"
LMCACHE = "lookup vllm/distributed/kv_transfer/kv_connector/v1/lmcache_connector.py"


@pytest.mark.parametrize(
    ("frames", "part"),
    [
        ((STEP, SCHEDULE), "scheduler"),
        ((STEP, SCHEDULE, "BlockPool.get_new_blocks vllm/v1/core/block_pool.py"), "block-allocation"),
        ((STEP, SCHEDULE, HASH, "dumps json/__init__.py"), "prefix-hashing"),
        ((STEP, SCHEDULE, "Scheduler.get_grammar_bitmask vllm/v1/core/sched/scheduler.py"), "structured-output"),
        ((OUTPUTS,), "http"),
        ((OUTPUTS, DECODE), "detokenizing"),
        ((OUTPUTS, LOGPROBS, CONVERT), "logprobs"),
        ((OUTPUTS, "debug logging/__init__.py", "dumps json/__init__.py"), "logging"),
        (("run asyncio/x.py", "render jinja2/environment.py", "root <template>"), "chat-template"),
        ((PARSE, ENCODE), "parsers"),
        (("collect gc_collect_main",), "other"),
        (("run a.py", "gc_collect_main libpython3.11.so.1.0"), "garbage-collection"),
        (("busy mine.py",), "other"),
        (
            ("f vllm/v1/core/kv_cache_utils.py", "hash_block_tokens.<locals>.<genexpr> vllm/v1/core/kv_cache_utils.py"),
            "prefix-hashing",
        ),
    ],
)
def test_the_innermost_frame_that_is_described_decides(frames: tuple[str, ...], part: str) -> None:
    frames = tuple(frame if " " in frame else f"{frame} ?" for frame in frames)
    assert of(*frames).part == part


def test_a_thread_that_waits_is_idle_or_waits_for_the_device() -> None:
    assert of("run threading.py", WAIT).part == "idle"
    assert of(STEP, RESPONSE, WAIT).part == "device-wait"
    assert of(OUTPUT, SYNCHRONIZE).part == "device-wait"


@pytest.mark.parametrize(
    ("frames", "part"),
    [
        ((BUSY_LOOP, "has_unfinished_dp vllm/config/parallel.py", GLOO), "rank-wait"),
        ((BUSY_LOOP, "has_unfinished_dp vllm/config.py", GLOO), "rank-wait"),
        ((EXECUTE, "_run_ar vllm/v1/worker/dp_utils.py", GLOO), "rank-wait"),
        ((EXECUTE, "GroupCoordinator.recv_object vllm/distributed/parallel_state.py", GLOO), "rank-wait"),
        ((EXECUTE, "cudaStreamSynchronize libcudart.so.12", "? libcuda.so.1"), "device-wait"),
        ((EXECUTE, "GPUModelRunner.synchronize_input_prep vllm/v1/worker/gpu_model_runner.py"), "device-wait"),
        ((EXECUTE, "__call__ vllm/compilation/cuda_graph.py", "replay torch/cuda/graphs.py"), "model-execution"),
        ((STEP, DAG, REF, "CompiledDAG._execute_until ray/dag/compiled_dag_node.py"), "device-wait"),
        ((STEP, DAG, REF, "Worker.get_objects ray/_private/worker.py"), "device-wait"),
        ((EXECUTE, "NgramProposer.propose vllm/v1/spec_decode/ngram_proposer.py", "f numba/x.py"), "drafting"),
        ((EXECUTE, "WorkerLoRAManager._load_adapter vllm/lora/worker_manager.py", "load safetensors/torch.py"), "lora"),
        ((SCHEDULE, LMCACHE, "f lmcache/x.py"), "kv-transfer"),
        (("build vllm/v1/attention/backends/flashinfer.py", "plan flashinfer/prefill.py"), "input-preparation"),
    ],
)  # fmt: skip
def test_what_only_servers_with_gpus_and_ranks_do(frames: tuple[str, ...], part: str) -> None:
    assert of(*frames).part == part


def test_looking_again_and_again_is_waiting() -> None:
    spin = ("MessageQueue.acquire_read vllm/distributed/device_communicators/shm_broadcast.py", "monotonic time.py")
    assert of("worker_busy_loop vllm/v1/executor/multiproc_executor.py", *spin).part == "idle"


def test_an_event_loop_may_work_in_c() -> None:
    assert of("run uvloop/__init__.py", "Runner.run asyncio/runners.py") == ("idle", "http")


def test_a_log_that_blocks_is_the_log() -> None:
    assert of("StreamHandler.flush logging/__init__.py").part == "logging"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("parts: []", "no part 'idle'"),
        ("parts:\n  - {id: a, says: a, does: a, frame: []}", "meant 'frames'"),
        ("parts:\n  - {id: a, says: a, does: a, frames: [{in: '*'}]}", "describes every frame"),
        ("parts:\n  - {id: a, says: a, does: a, frames: [{in: a.py, until: soon}]}", "no release of vLLM"),
        ("parts:\n  - {id: a, says: a, does: a, owns: 3}", "true or false"),
        ("parts:\n  - {id: a, says: a, does: a, frames: [{in: a.py, waiting: never}]}", "must be one of"),
    ],
)
def test_a_mistake_is_told(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "parts.yaml"
    path.write_text(text)
    with pytest.raises(DocumentError, match=problem.replace("'", ".")):
        parts.load(path)


def test_a_release_has_its_own_frames(tmp_path: Path) -> None:
    path = tmp_path / "parts.yaml"
    rest = "".join(f"  - {{id: {name}, says: x, does: x}}\n" for name in ("idle", "device-wait", "other"))
    path.write_text(f"parts:\n{rest}  - {{id: a, says: a, does: a, frames: [{{in: a.py, until: 0.30.0}}]}}\n")
    stack = [Frame("f", "a.py")]
    assert parts.load(path, "0.29.0").of(stack).part == "a"
    assert parts.load(path, "0.32.0").of(stack).part == "other"
    assert parts.load(path).of(stack).part == "a"

"""What of an exception's message a recording keeps."""

from __future__ import annotations

import json

import pytest

from vllm_doctor.rules import log_lines
from vllm_doctor.sources.log.entry_raised import Raised

WORDS = "some words of a client"
VLLM = "/v/lib/python3.12/site-packages/vllm"
HEADER = "Traceback (most recent call last):"
ACCESS = 'INFO:     127.0.0.1:1 - "POST /v1/completions HTTP/1.1" 200 OK'


def kept(*lines: str) -> list[str]:
    raised = Raised(log_lines.shipped())
    return [raised.kept(line) for line in lines]


def frame(path: str, function: str) -> str:
    return f'  File "{path}", line 7, in {function}'


def traced(message: str, *frames: tuple[str, str]) -> str:
    """The last line of such a traceback, as it is kept."""
    return kept(HEADER, *(line for each in frames for line in (frame(*each), "    code()")), message)[-1]


@pytest.mark.parametrize(
    "message",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.02 GiB. GPU 0 has a total capacity of 14 GiB",
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "RuntimeError: HIP error: invalid argument",
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`",
        "OSError: [Errno 24] Too many open files: '/proc/self/stat'",
        "ModuleNotFoundError: No module named 'flash_attn'",
        "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
        "vllm.exceptions.VLLMValidationError: This model's maximum context length is 32768 tokens.",
        "UserWarning: this is deprecated",
    ],
)
def test_what_the_machine_or_the_rules_know_stays(message: str) -> None:
    assert kept(message, f"ERROR 11-20 10:00:00 [core.py:9] {message}")[0] == message
    assert traced(message, ("/x/serve.py", "f")) == message


@pytest.mark.parametrize("type_", ["ValueError", "jinja2.exceptions.TemplateError", "TypeError", "x.y.BadRequestError"])
def test_of_others_the_type_stays(type_: str) -> None:
    assert kept(f"{type_}: {WORDS}") == [f"{type_}: [masked]"]
    prefix = "ERROR 11-20 10:00:00 [serving_chat.py:9] "
    assert kept(f"{prefix}Error in chat: {type_}: {WORDS}") == [f"{prefix}Error in chat: {type_}: [masked]"]


@pytest.mark.parametrize(
    ("frames", "stays"),
    [
        ([(f"{VLLM}/v1/engine/core.py", "run_engine_core"), (f"{VLLM}/v1/worker/gpu_worker.py", "init_device")], True),
        ([("/v/bin/vllm", "<module>"), (f"{VLLM}/engine/arg_utils.py", "create_model_config")], True),
        ([("/src/vllm/vllm/v1/worker/gpu_model_runner.py", "load_model")], True),
        ([(f"{VLLM}/v1/engine/core.py", "add_request"), (f"{VLLM}/v1/structured_output/__init__.py", "init")], False),
        ([(f"{VLLM}/entrypoints/openai/serving_chat.py", "create_chat_completion")], False),
        ([(f"{VLLM}/v1/engine/async_llm.py", "generate")], False),
        ([(f"{VLLM}/v1/engine/async_llm.py", "from_vllm_config")], True),
        (
            [(f"{VLLM}/v1/engine/async_llm.py", "__init__"), (f"{VLLM}/multimodal/encoder_budget.py", "__init__")],
            True,
        ),
        ([(f"{VLLM}/v1/engine/async_llm.py", "generate"), (f"{VLLM}/multimodal/inputs.py", "__init__")], False),
        ([("/v/site-packages/uvicorn/x.py", "run_asgi"), (f"{VLLM}/v1/worker/gpu_worker.py", "load_model")], False),
        ([("/home/me/my_plugin.py", "f")], False),
        ([], False),
    ],
)
def test_a_traceback_through_the_engine_alone_keeps_its_message(frames: list[tuple[str, str]], stays: bool) -> None:
    message = "ValueError: Unknown quantization method: x"
    assert traced(message, *frames) == (message if stays else "ValueError: [masked]")


def test_a_message_of_several_lines_is_cut_to_its_end() -> None:
    lines = [HEADER, frame("/x/y.py", "f"), "ValueError: a", WORDS, "", f"  {WORDS}", ACCESS, "ordinary"]
    assert kept(*lines) == [*lines[:2], "ValueError: [masked]", "[masked]", "", "  [masked]", ACCESS, "ordinary"]


def test_with_vllms_prefix_it_ends_with_the_record() -> None:
    prefix = "ERROR 11-20 10:00:00 [serving_chat.py:9] "
    after = "INFO 11-20 10:00:00 [launcher.py:9] Route: /x"
    found = kept(f"{prefix}ValueError: a", f"{prefix}{WORDS}", after)
    assert found == [f"{prefix}ValueError: [masked]", f"{prefix}[masked]", after]


def test_what_a_clock_tells_apart_is_another_message() -> None:
    found = kept("2026-11-20T10:00:00Z ValueError: a", f"2026-11-20T10:00:00Z {WORDS}", "2026-11-20T10:00:09Z well")
    assert found == ["2026-11-20T10:00:00Z ValueError: [masked]", "2026-11-20T10:00:00Z [masked]",
                     "2026-11-20T10:00:09Z well"]  # fmt: skip


def test_a_path_that_is_a_question() -> None:
    assert kept(f"FileNotFoundError: [Errno 2] No such file or directory: '{WORDS}'")[0].endswith("Error: [masked]")


def test_a_line_of_docker_stays_json() -> None:
    found = kept(json.dumps({"log": f"ValueError: {WORDS}\n", "stream": "stderr"}))
    assert json.loads(found[0]) == {"log": "ValueError: [masked]\n", "stream": "stderr"}


def test_a_traceback_in_a_field_of_json() -> None:
    trace = f'{HEADER}\n  File "/x.py", line 1, in f\nValueError: {WORDS}'
    found = kept(json.dumps({"message": "failed", "exc_info": trace, "level": "error"}))
    assert WORDS not in found[0]
    assert json.loads(found[0])["exc_info"].endswith("ValueError: [masked]")


def test_processes_are_told_apart() -> None:
    a, b = "(APIServer pid=1) ", "(EngineCore pid=2) "
    engine = frame(f"{VLLM}/v1/worker/gpu_worker.py", "load_model")
    lines = [a + HEADER, b + HEADER, a + frame("/x/serving.py", "f"), b + engine, f"{a}ValueError: {WORDS}",
             b + "ValueError: no such layer"]  # fmt: skip
    assert kept(*lines)[-2:] == [f"{a}ValueError: [masked]", b + "ValueError: no such layer"]

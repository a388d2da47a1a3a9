"""An expectation to render."""

from __future__ import annotations

from dataclasses import replace

from tests.render.reports import AT
from vllm_doctor.model.expectation import Assumption, Expectation, Lacking, Load, LoadExpected, Range
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.report import Patient, Report, SourceSeen, Verdict

GIB = 2.0**30
TPOT, TTFT = Range(0.005, 0.008, 0.01, 0.0155), Range(0.02, 0.05, 0.07, 0.14)
RATE = Range(180.0, 60.0, 97.3, 120.0)


def load(requests: float, running: float | None = None) -> LoadExpected:
    running = requests if running is None else running
    queue = Range(*(seconds * (requests / running - 1) for seconds in (5.0, 8.0, 10.0, 16.0)))
    rate = RATE.each(lambda rate: rate * running)
    return LoadExpected(Load(requests, 1024.0, 512.0), running, TPOT, TTFT, rate, RATE, queue)


def fitting(*loads: LoadExpected) -> Expectation:
    return Expectation(
        refused=None,
        fits=True,
        gpus=2.0,
        gpus_here=2.0,
        gpus_needed=1.0,
        gpu_memory=80 * GIB,
        gpu_memory_taken=0.9,
        weights_per_gpu=15 * GIB,
        kv_memory_per_gpu=50 * GIB,
        kv_tokens=800_000.0,
        requests_that_fit=520.0,
        full_length=131_072.0,
        full_length_requests=6.1,
        longest_request=800_000.0,
        loads=loads or (load(16),),
        assumptions=(
            Assumption("weights of the model", 30 * GIB, "bytes", "model-name"),
            Assumption("parameters of the model", 16e9, "", "model-files"),
            Assumption("its bandwidth", 3.35e12, "bytes/s", "--gpu"),
            Assumption("its 16-bit operations", 989e12, "FLOP/s", "--gpu"),
            Assumption("data type of the KV cache", "auto", "text", "default"),
            Assumption("pipeline parallel size", 1.0, "", "default"),
            Assumption("tensor parallel size", 2.0, "", "cmdline"),
        ),
        unknown=(),
    )


def short_of_context() -> Expectation:
    return replace(fitting(), full_length_requests=0.4, longest_request=50_144.0)


def too_large() -> Expectation:
    none = Range()
    nothing = LoadExpected(Load(16.0, 1024.0, 512.0), 0.0, none, none, none, none, none)
    return replace(
        fitting(nothing), fits=False, gpus=1.0, gpus_needed=4.0, kv_memory_per_gpu=0.0, kv_tokens=0.0,
        requests_that_fit=0.0, full_length_requests=0.0, longest_request=0.0,
    )  # fmt: skip


def refused() -> Expectation:
    return replace(fitting(), refused="64 attention heads cannot be divided by --tensor-parallel-size (3)")


def of_unknown_gpu() -> Expectation:
    none = Range()
    unknown = LoadExpected(Load(16.0, 1024.0, 512.0), None, none, none, none, none, none)
    return replace(
        fitting(unknown), fits=None, gpu_memory=None, gpus_needed=None, kv_memory_per_gpu=None, kv_tokens=None,
        requests_that_fit=None, full_length_requests=None, longest_request=None,
        unknown=(Lacking("the GPU's memory", "name the GPUs: --gpu 4xH100"),),
    )  # fmt: skip


def report(expectation: Expectation) -> Report:
    """Of a command alone."""
    source = SourceSeen(SourceKind.COMMAND, "--command: line 1", 0.0, 0, None, ("line 1: $X is not expanded",))
    patient = Patient("0.30.0", "some/model", None, gpu="H100")
    return Report(
        AT, Verdict.UNKNOWN, "Nothing was measured", patient, (source,), (), (), (), (), (), {},
        command=("vllm", "serve", "some/model", "-tp", "2"), expect=expectation,
    )  # fmt: skip

"""What a server with these flags should do, as a range, without a server."""

from __future__ import annotations

from vllm_doctor.cli.options import Parser, add_config, form_of
from vllm_doctor.cli.output import is_coloured, write
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.reading import Known

TYPE_CHECKING = False  # as in options.py
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from vllm_doctor.model.expectation import Expectation
    from vllm_doctor.model.observation import Observation
    from vllm_doctor.model.reading import Value
    from vllm_doctor.model.report import Report

_EPILOG = """\
All other options are vLLM's own, as `vllm serve` takes them: -tp 4, -pp, -dp, --enable-expert-parallel,
--max-model-len, --kv-cache-dtype fp8, --quantization awq, --max-num-seqs, ... (vllm-doctor flags VERSION lists them).
exit codes: 0 answered, 3 no answer (model or GPU unknown, wrong usage).
"""
_AS_FLAGS: dict[str, tuple[str, ...]] = {
    "bf16": ("--dtype", "bfloat16"),
    "fp16": ("--dtype", "float16"),
    "fp32": ("--dtype", "float32"),
    "fp8": ("--quantization", "fp8"),
    "int4": ("--quantization", "awq"),
    "awq": ("--quantization", "awq"),
    "gptq": ("--quantization", "gptq"),
    "mxfp4": ("--quantization", "mxfp4"),
    "nvfp4": ("--quantization", "modelopt_fp4"),
}
"""What people call a data type, as vLLM takes it; others are given on as they are."""
_MOST = 1e9
_SECONDS = 8.0


def run(arguments: Sequence[str]) -> int:
    """0: answered; 3: nothing can be told."""
    options, given = parsed(arguments, is_configured=True)
    form_of(options)
    report, expectation = answer(options, given)
    if options.json:
        from vllm_doctor.render import expect_json

        rendered = expect_json.render(report)
    else:
        from vllm_doctor.render import expect_text

        rendered = expect_text.render(report, expectation, is_coloured(options))
    write(rendered, options)
    return 0


def answer(options: argparse.Namespace, given: Sequence[str]) -> tuple[Report, Expectation]:
    """What is expected of the command that these options are, and the report on it. `given`: vLLM's own options.

    Redacted. Raises UsageError and SourceError, with one line to act on; also where nothing can be told.
    """
    report = _judged(options, given)
    if report.expect is None or not report.expect.is_answer:
        raise UsageError(_nothing(report))
    return report, report.expect


def _judged(options: argparse.Namespace, given: Sequence[str]) -> Report:
    import shlex
    import time
    from contextlib import ExitStack
    from datetime import UTC, datetime

    from vllm_doctor.cli import chosen_rules
    from vllm_doctor.session.attach import attach
    from vllm_doctor.session.attachment import Attachment
    from vllm_doctor.session.judge import judge
    from vllm_doctor.session.observe import observe
    from vllm_doctor.sources.server.access import Access
    from vllm_doctor.text import redact
    from vllm_doctor.vllm import flags

    command = options.command if options.command is not None else shlex.join(_command(options, given))
    if options.command is not None and (given or options.model or options.dtype):
        raise UsageError("--command holds vLLM's own options: write the others there (vllm-doctor expect --help)")
    if options.vllm is not None and flags.release(options.vllm) is None:
        raise UsageError(f"--vllm {options.vllm}: write a version, as in --vllm 0.19.0")
    rules, signals = chosen_rules.load(options)
    how = Attachment(
        signals.metrics,
        Access(),
        0.0,
        time.monotonic() + _SECONDS,
        command=command,
        gpu=options.gpu,
        vllm=options.vllm,
    )
    with ExitStack() as opened:
        sources = attach((), how, opened)
        if len({source.patient for source in sources}) > 1:
            raise UsageError("--command holds several commands of vLLM: give one of them")
        observations = observe(sources, _SECONDS)
    if options.command is None:
        _check_flags(observations)
    return redact.report(judge(observations, rules, signals, _load(options), datetime.now(UTC)))


def _command(options: argparse.Namespace, given: Sequence[str]) -> list[str]:
    """As vLLM would be started."""
    words = list(given)
    model = options.model
    if model is None and words and not words[0].startswith("-"):
        model = words.pop(0)
    if model is None:
        raise UsageError("which model? vllm-doctor expect --model MODEL --gpu 4xH100 (vllm-doctor expect --help)")
    kind = options.dtype
    return ["vllm", "serve", model, *(_AS_FLAGS.get(kind.lower(), ("--dtype", kind)) if kind else ()), *words]


def _load(options: argparse.Namespace) -> dict[str, Value]:
    from vllm_doctor.model.expectation import Load
    from vllm_doctor.rules import expectation

    load = Load(options.concurrency, options.input_len, options.output_len)
    return {"goal": "throughput", **expectation.facts(load)}


def _check_flags(observations: Sequence[Observation]) -> None:
    """A flag of nobody is a slip of the pen. Raises UsageError."""
    for observation in observations:
        strangers, names = (observation.facts.get(name) for name in ("flags_in_no_version", "flags_unknown_names"))
        if isinstance(strangers, Known) and strangers.value and isinstance(names, Known):
            raise UsageError(f"neither vllm-doctor expect nor vLLM has the option {names.value} (--help)")


def _nothing(report: Report) -> str:
    """Why nothing can be told, and how to give it: one line."""
    from vllm_doctor.vllm import checkpoints

    expectation, model = report.expect, report.patient.model
    if expectation is None or not expectation.unknown:
        return "nothing is known of this command"
    if expectation.weights_per_gpu is not None and expectation.gpu_memory is None:  # what is wrong with the GPU's name
        for source in report.sources:
            if source.kind is SourceKind.GPU_NAME and source.notes:
                return source.notes[0]
    first = expectation.unknown[0]
    like = checkpoints.nearest(model) if model is not None and expectation.weights_per_gpu is None else []
    near = f"; the nearest names: {', '.join(like)}" if like and like[0] != model else ""
    return f"{first.what} is not known: {first.how}{near}"


def parsed(arguments: Sequence[str], is_configured: bool = False) -> tuple[argparse.Namespace, list[str]]:
    """The options of this command, and vLLM's own; `is_configured`: a configuration file counts. Raises UsageError."""
    from vllm_doctor.vllm import flags

    made = parser()
    options, given = made.settled_known(arguments) if is_configured else made.parse_known_args(arguments)
    if slip := made.slip(given, flags.is_flag):
        raise UsageError(slip)
    return options, given


def parser() -> Parser:
    """Its own options."""
    parser = Parser(
        "vllm-doctor expect",
        "What a server with these flags should do, as a range, without a server.",
        "--model MODEL --gpu 4xH100 [--concurrency N] [vLLM's own options]",
        (
            ("vllm-doctor expect --model Qwen/Qwen3-8B --gpu H100", "16 requests at a time, of 1024 + 1024 tokens"),
            ("vllm-doctor expect --command deployment.yaml --gpu 4xH100 --concurrency 64", "of a command as written"),
        ),
    )
    parser.epilog = _EPILOG
    add = parser.add_argument
    add("--model", metavar="MODEL", help="the model: its name on the Hugging Face Hub, or its folder")
    add("--gpu", metavar="NAME", help="the GPUs: H100, 8xL40S, 4090, 'A100 40GB', p5.48xlarge")
    add("--command", metavar="TEXT|FILE", help="how the server will be started, in place of --model and vLLM's options")
    add("--concurrency", type=count, default=16.0, metavar="N", help="concurrent requests (16)")
    add("--input-len", type=count, default=1024.0, metavar="TOKENS", help="prompt tokens of a request (1024)")
    add("--output-len", type=count, default=1024.0, metavar="TOKENS", help="generated tokens of a request (1024)")
    add(
        "--dtype",
        metavar="TYPE",
        help="of the weights: bf16, fp16, fp8, int4, awq, gptq, mxfp4, nvfp4",
    )
    add("--vllm", metavar="VERSION", help="vLLM's version (the newest that is known)")
    add("--rules", action="append", default=[], metavar="DIR", help="more rules and signals")
    add("--text", action="store_true", help="text output (the default)")
    add("--json", action="store_true", help="JSON output, version 1")
    add("-o", dest="output", metavar="FILE", help="write to FILE, whole or not at all")
    add_config(parser, "rules")
    parser.set_defaults(rule=[], skip=[])
    return parser


def count(text: str) -> float:
    """A whole number from 1 to a billion; raises ValueError, as argparse wants."""
    value = int(text) if text.isascii() and len(text) < 12 else 0
    if not 1 <= value <= _MOST:
        raise ValueError(text)
    return float(value)

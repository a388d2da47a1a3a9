"""What a command will give before it is started: whether it fits, how fast it should be, and on what assumptions."""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.model.expectation import Assumption, Expectation, LoadExpected, Range
from vllm_doctor.model.reading import Known
from vllm_doctor.model.report import Finding, Report, grouped
from vllm_doctor.render.page import Fold, Heading, Labelled, Lines, Span, Table, Words, code, rule
from vllm_doctor.text import words

_FROM = {
    "assumed": "assumed",
    "cmdline": "the command",
    "computed": "computed",
    "default": "vLLM's default",
    "image": "the image",
    "model-files": "its config.json",
    "model-name": "its name",
    "flags": "the newest that has its flags",
    "newest": "the newest known",
    "user": "given",
    "--gpu": "data sheet",
}
"""Where an assumption is from, in words; others say it themselves."""
_CELL = 20
"""Characters of a value that stands in a table."""
_GIGA, _TERA = 1e9, 1e12
_RANGE = "in brackets: from low to high, what such servers typically reach"


def will_give(report: Report, whole: bool) -> tuple[Heading | Labelled, ...]:
    """Of a command in a report: what it holds, its speed under some loads, and what its flags cost."""
    expectation = report.expect
    if expectation is None or not expectation.says_anything:
        return ()
    blocks: list[Heading | Labelled] = [Heading("What this command will give", signpost=False), fits(expectation)]
    if expectation.refused is not None:
        blocks.append(Labelled("Refused", f"vLLM does not start with these flags: {expectation.refused}"))
    known = [load for load in expectation.loads if load.tpot.is_known]
    if known:
        rows = tuple(_of_load(load) for load in known)
        head = ("Concurrent requests", "tokens/s of each", "Total tokens/s", "Time to first token")
        table = Table(head, rows, frozenset({1, 2}), (_RANGE, *_bound(known[0])))
        blocks.append(Labelled("Speed", f"tokens/s of requests with {_lengths(known[0])}", (table,)))
    lines = tuple(line for finding in report.findings for line in _cost(finding))
    if known and lines:
        blocks.append(
            Labelled(
                "Costs", f"What the speed above is without, with {_requests(known[0].load.requests)}:", (Lines(lines),)
            )
        )
    if whole:
        blocks.append(assumed(expectation))
    return tuple(blocks)


def findings(report: Report) -> tuple[Labelled, ...]:
    """What the rules find in the command, each in a line, and what it costs."""
    lines: list[Words] = []
    for group in grouped([*report.main, *report.aside]):
        sign, cost = group[0].severity.sign, tuple(_cost(group[0]))
        lines.append((f"{sign} ", *(cost[0] if cost else (f"{group[0].title} ", rule(group[0].rule)))))
    if any(finding.cost is not None for finding in report.findings):
        lines.append("The speed above is without what these cost.")
    return (Labelled("Findings", lines[0], (Lines(tuple(lines[1:])),) if lines[1:] else ()),) if lines else ()


def _cost(finding: Finding) -> Iterator[tuple[str | Span, ...]]:
    """What a finding adds to each output token, where that is known."""
    if finding.cost is not None and finding.cost.at_most is not None:
        added = f": at most {words.number(finding.cost.at_most, 's')} more a token"
        yield f"{finding.title} ", rule(finding.rule), added


def speed(load: LoadExpected) -> Labelled:
    """What one load gets, in full."""
    rows = (
        _figure("time per output token", load.tpot, "s"),
        _figure("time to first token", load.ttft, "s"),
        _figure("tokens/s per request", load.rate_of_request, ""),
        _figure("total tokens/s", load.rate, ""),
    )
    known = tuple(row for row in rows if row is not None)
    if not known:
        return Labelled("Speed", "not known")
    head = ("What", "Typical", "Low to high", "Physical bound")
    return Labelled("Speed", body=(Table(head, known, frozenset({1, 2})),))


def load(expectation: Expectation) -> Labelled:
    """What is asked, and how much of it runs at the same time."""
    load, said = expectation.loads[0], []
    tokens = load.load.input_tokens + load.load.output_tokens
    if expectation.full_length is not None and tokens > expectation.full_length:
        said.append(f"vLLM refuses them: the context limit is {words.number(expectation.full_length)} tokens")
    if load.running is not None and load.queued:
        waits = f", {_number(load.queue.typical, 's')} typically" if load.queue.typical is not None else ""
        running, queued = words.number(load.running, "requests"), words.number(load.queued, "requests")
        said.append(f"{running} run concurrently; the other {queued} wait for their turn{waits}")
    asked = f"{_requests(load.load.requests, 'concurrent ')}, each with {_lengths(load)}"
    return Labelled("Load", asked, (Lines(tuple(said)),) if said else ())


def fits(expectation: Expectation) -> Labelled:
    """Whether weights and KV cache fit, in figures; what would."""
    first, *more = _fits(expectation)
    return Labelled("Fits", first, (Lines(tuple(more)),) if more else ())


def assumed(expectation: Expectation) -> Labelled:
    """Each value that the answer is computed from, and where it is from."""
    shown = [one for one in expectation.assumptions if (one.origin, one.value) != ("default", 1)]  # one replica
    long = [one for one in shown if len(_value(one)) > _CELL]
    lines: list[Words] = [f"{one.what}: {_value(one)} ({_from(one)})" for one in long]
    rows = tuple((one.what, _value(one), _from(one)) for one in shown if one not in long)
    table = Table(("What", "Value", "From"), rows)
    return (
        Labelled("Assumed", lines[0], (Lines(tuple(lines[1:])), table)) if lines else Labelled("Assumed", "", (table,))
    )


def unknown(expectation: Expectation) -> tuple[Fold, ...]:
    """What is not known, and how to give it."""
    items: tuple[Words, ...] = tuple(f"{one.what}: {one.how}" for one in expectation.unknown)
    return (Fold("Not known", items),) if items else ()


def headline(expectation: Expectation) -> tuple[str, str]:
    """The answer in a word and a sentence."""
    load = expectation.loads[0]
    if expectation.refused is not None:
        return "refused", f"vLLM does not start: {expectation.refused}"
    if expectation.fits is False:
        return "too large", _too_large(expectation)
    each, together = load.rate_of_request.typical, load.rate.typical
    if each is None or together is None:
        return (
            "unknown",
            "The speed cannot be estimated" if expectation.fits is None else "It fits; its speed is unknown",
        )
    if load.load.requests == 1:
        return "expect", f"{words.number(each)} tokens/s per request"
    if load.queued:
        running, queued = _requests(load.running), words.number(load.queued, "requests")
        said = f"{words.number(each)} tokens/s for each of {running} that run, {words.number(together)} in total"
        return "expect", f"{said}; {queued} wait"
    of = _requests(load.load.requests)
    return "expect", f"{words.number(each)} tokens/s for each of {of}, {words.number(together)} in total"


def _too_large(expectation: Expectation) -> str:
    needed, gpus = expectation.gpus_needed, expectation.gpus
    here = f"; the command uses {_gpus(gpus)}" if gpus is not None else ""
    if needed is not None and gpus is not None and needed <= gpus:  # its size was given by hand
        load = expectation.loads[0].load
        tokens = words.number(load.input_tokens + load.output_tokens)
        return f"The KV cache is too small for a request of {tokens} tokens"
    if needed is None:
        return f"The model does not fit into the GPU memory{here}"
    return f"The model needs {_gpus(needed)} of this size{here}"


def _fits(expectation: Expectation) -> Iterator[Words]:
    weights, memory, taken = expectation.weights_per_gpu, expectation.gpu_memory, expectation.gpu_memory_taken
    of_gpu = ""
    if memory is not None and taken is not None:
        of_gpu = f", of {_number(memory, 'bytes')} of which vLLM takes {_number(taken, 'share')}"
    on_each = "on the GPU" if expectation.gpus == 1 else "on each GPU"
    held = f"{_number(weights, 'bytes')} of weights {on_each}{of_gpu}" if weights is not None else ""
    if expectation.fits is None:
        yield f"unknown: {held or 'the size of the model is not known'}"
        return
    if not expectation.fits:
        yield f"no: {held or 'the weights'}; {_too_large(expectation)[0].lower()}{_too_large(expectation)[1:]}"
        return
    is_short = expectation.context_fits is False
    yield f"{'only with a lower context limit' if is_short else 'yes'}: {held}"
    length = expectation.loads[0].load.input_tokens + expectation.loads[0].load.output_tokens
    kv = f"{_number(expectation.kv_memory_per_gpu, 'bytes')} {on_each} for the KV cache"
    yield (
        f"{kv}: {_number(expectation.kv_tokens)} tokens, {_requests(expectation.requests_that_fit)}"
        f" of {_number(length, 'tokens')} tokens"
    )
    if is_short:
        refused = f"vLLM does not start with the context limit of {_number(expectation.full_length)} tokens"
        shorter = expectation.longest_request
        yield (refused, "; it does with ", code(f"--max-model-len {int(shorter)}")) if shorter else refused
    elif expectation.full_length_requests is not None:
        full = words.number(expectation.full_length_requests, "requests")
        yield f"of the full context of {_number(expectation.full_length)} tokens an engine holds {full}"


def _of_load(load: LoadExpected) -> tuple[Words, ...]:
    each = f"{_number(load.rate_of_request.typical)} ({_span(load.rate_of_request, '')}) each"
    return (
        _requests(load.load.requests),
        each,
        f"{_number(load.rate.typical)} in total",
        f"TTFT {_number(load.ttft.typical, 's')}",
    )


def _bound(load: LoadExpected) -> Iterator[Words]:
    bound = load.rate_of_request.bound
    if bound is not None:
        yield f"physical bound of {_requests(load.load.requests)}: {words.number(bound)} tokens/s"


def _figure(says: str, range: Range, unit: str) -> tuple[Words, ...] | None:
    if range.typical is None:
        return None
    bound = f"bound {words.number(range.bound, unit)}" if range.bound is not None else ""
    return says, words.number(range.typical, unit), _span(range, unit), bound


def _span(range: Range, unit: str) -> str:
    if range.low is None or range.high is None:
        return ""
    return words.reading(Known(range.low, range.low, range.high), unit)


def _lengths(load: LoadExpected) -> str:
    return f"{_number(load.load.input_tokens)} prompt tokens and {_number(load.load.output_tokens)} generated tokens"


def _requests(count: float | None, kind: str = "") -> str:
    return f"1 {kind}request" if count == 1 else f"{_number(count, 'requests')} {kind}requests"


def _gpus(count: float) -> str:
    return f"{words.number(count)} GPU{'' if count == 1 else 's'}"


def _number(value: float | None, unit: str = "") -> str:
    return "?" if value is None else words.number(value, unit)


def _from(one: Assumption) -> str:
    return _FROM.get(one.origin, one.origin)


def _value(one: Assumption) -> str:
    if isinstance(one.value, (str, bool)):
        return words.reading(Known(one.value), one.unit)
    match one.unit:
        case "bytes/s":
            return f"{words.number(one.value / _GIGA)} GB/s"
        case "FLOP/s":
            return f"{words.number(one.value / _TERA)} TFLOPS"
        case "" if one.value >= _GIGA:
            return f"{words.number(one.value / _GIGA)} billion"
        case unit:
            return words.number(one.value, unit)

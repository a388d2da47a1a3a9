"""A finding: where and when, why, the evidence, what it costs, its remedies; and the command without its causes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vllm_doctor.model.reason import HOW_TO_LEARN, Reason
from vllm_doctor.model.report import Evidence, Finding, Remedy, Report
from vllm_doctor.render.page import (
    Card,
    Command,
    Diff,
    Explains,
    Heading,
    Labelled,
    Lines,
    Note,
    Shell,
    Span,
    Table,
    Words,
    code,
    joined,
    listed,
    rule,
    soft,
)
from vllm_doctor.text import changes, times, words

_EVIDENCE = 6
"""The comparisons that a reader in a hurry sees."""
_ENGINES = 4
_NOTE = {"opportunity": "Opportunity", "not-server": "Client"}
_ADMINISTRATOR = "administrator"


def card(group: Sequence[Finding], report: Report, whole: bool, headline: str) -> Card:
    """The findings of one rule with all about them; `headline`: what stands above."""
    finding = group[0]
    blocks = about(group, report, whole, None if whole else _EVIDENCE)
    return Card(finding.severity, finding.title, finding.rule, blocks, repeats=finding.title == headline)


def about(
    group: Sequence[Finding], report: Report, whole: bool = False, most: int | None = None
) -> tuple[Labelled | Explains, ...]:
    """Where, when, why, on what evidence, at what cost, and what to do; `most`: the comparisons that are shown."""
    finding = group[0]
    where, when = _where(group, report), times.when(group, report)
    blocks: list[Labelled | Explains] = []
    blocks += [Labelled("Where", where)] if where else []
    blocks += [Labelled("When", when)] if when else []
    blocks.append(Labelled("Why", " ".join(part for part in (finding.here, finding.why) if part)))
    if finding.confidence != "high":
        blocks.append(Labelled("Confidence", f"{finding.confidence}: partly inferred"))
    if finding.evidence:
        blocks.append(Labelled("Evidence", body=(_evidence(finding, whole, most),)))
    symptoms = dict.fromkeys((s.title, s.rule) for s in report.findings if s.explained_by == finding.rule)
    if symptoms:
        blocks.append(Explains(tuple((title, " ", rule(id)) for title, id in symptoms)))
    gain = finding.potential
    if gain is not None:
        blocks.append(Labelled("Gain", words.bound(gain.at_most, gain.basis)))
    if cost := _cost(finding):
        blocks.append(Labelled("Cost", cost))
    elif gain is None and finding.asks_gain:
        blocks.append(Labelled("Gain", "unknown"))
    blocks += [_remedy(place, remedy, finding, whole) for place, remedy in enumerate(finding.remedies)]
    return tuple(blocks)


def _cost(finding: Finding) -> str:
    """What it adds to each output token, at most, and the share of what is missing; "" where the gain says it."""
    cost = finding.cost
    if cost is None or (finding.potential is not None and not cost.is_asked):
        return ""
    if cost.at_most is None:
        return "not known; it may be all of the speed that is missing" if cost.is_asked else ""
    share = f", {words.number(cost.share, 'share')} of what is missing" if cost.share is not None else ""
    return f"at most {words.number(cost.at_most, 's')} for each output token{share} ({cost.basis})"


def note(group: Sequence[Finding], report: Report) -> Note:
    """A finding that is only worth knowing, in a line, with its first remedy in another."""
    finding = group[0]
    where, when = _where(group, report), times.held(group, report)
    parts = (
        f"({where})" if where else "",
        "" if finding.here and finding.here in report.headline else finding.here,
        f"Gain: {words.bound(finding.gain.at_most, finding.gain.basis)}." if finding.gain else "",
        f"({when})" if when and "all the time" not in when else "",
    )
    return Note(
        label=_NOTE.get(finding.role, "Note"),
        state=finding.severity,
        title=finding.title,
        rule=finding.rule,
        text=" ".join(part for part in parts if part),
        advice=_advice(finding.remedies[0]) if finding.remedies else "",
        repeats=report.headline.startswith(finding.title),
    )


def _advice(remedy: Remedy) -> Words:
    brief = changes.brief(remedy)
    flags: tuple[str | Span, ...] = (": ", *listed([" ".join(line) for line in brief])) if brief else ()
    return remedy.do, *flags, f" ({remedy.computed})" if remedy.computed else ""


def gist(main: Sequence[Finding]) -> tuple[Words, ...]:
    """The first finding's own sentence, and its fix."""
    if not main:
        return ()
    finding = main[0]
    here: tuple[Words, ...] = (finding.here,) if finding.here else ()
    if not finding.remedies:
        return here
    diff = changes.diff(finding.remedies[0])
    lines = [line for line in diff if line[0] == "+"] or diff
    flags = [(code(" ".join(line)),) for line in lines]
    return (*here, joined([f"Fix: {finding.remedies[0].do}", *flags], " "))


def _where(group: Sequence[Finding], report: Report) -> str:
    named = report.engines_of(group)
    if not named:
        return ""
    more = f" and {len(named) - _ENGINES} more" if len(named) > _ENGINES else ""
    return f"on {len(named)} of {len(report.engines)} engines: {'; '.join(named[:_ENGINES])}{more}"


def _evidence(finding: Finding, whole: bool, most: int | None) -> Table:
    evidence = list(finding.evidence) if whole else _strictest(finding.evidence)
    rows = tuple(_comparison(one, whole) for one in evidence[:most])
    left = len(evidence) - len(rows)
    more = (f"and {left} more {'comparison' if left == 1 else 'comparisons'}: --json",) if left else ()
    source = f"thresholds: {words.ORIGIN[finding.threshold_from]}"
    return Table(("What", "Value", "Threshold", "From"), rows, frozenset({1}), (*more, source))


def _comparison(one: Evidence, whole: bool) -> tuple[Words, ...]:
    """The last cell explains itself where the table has no head."""
    than = words.compared(one.is_, one.than, one.unit, one.than_signal)
    source = one.origin if whole or one.origin == "computed" else f"from {one.origin}"
    return one.says, words.reading(one.seen, one.unit), (code(than),) if than else "", source


def _strictest(evidence: Iterable[Evidence]) -> list[Evidence]:
    """Of one signal that is above two bounds, or below two, the bound that says more."""
    kept: dict[tuple[str, str], Evidence] = {}
    for one in evidence:
        key = (one.signal, one.is_[:1])
        before = kept.get(key)
        if before is not None and isinstance(before.than, float) and isinstance(one.than, float):
            says_more = one.than > before.than if key[1] == ">" else one.than < before.than
            kept[key] = one if says_more else before
        else:
            kept.setdefault(key, one)
    return list(kept.values())


def _remedy(place: int, remedy: Remedy, finding: Finding, whole: bool) -> Labelled:
    """What to do, what that changes and what is to be run; then what it costs and what will be."""
    body: list[Diff | Shell | Lines] = []
    if lines := changes.diff(remedy) if whole else changes.result(remedy):
        body.append(Diff(lines))
    if remedy.run:
        body.append(Shell(remedy.run, "as an administrator" if remedy.by == _ADMINISTRATOR else ""))
    is_unchecked = bool(remedy.set) and remedy.validated_for is None
    said: list[Words] = [remedy.computed] if remedy.computed else []
    said += _lacking(remedy)
    said.append(f"{words.COST[remedy.cost]}; then expect: {remedy.expect}")
    said += [f"then: {sentence}" for sentence in remedy.then]
    said.append(soft(f"risk: {remedy.risk}"))
    if remedy.starts_unknown:
        names = [(code(name), f" ({HOW_TO_LEARN[reason]})") for name, reason in remedy.starts_unknown.items()]
        said.append(("not known whether vLLM starts with it: ", *joined(names, ", ")))
    if is_unchecked and (whole or not place):  # on a terminal once is enough
        said.append("the flag was not checked: the server's version is unknown")
    return Labelled("Or" if place else "Fix", remedy.do, (*body, Lines(tuple(said))))


def _lacking(remedy: Remedy) -> list[Words]:
    """Why a value could not be computed, a sentence for each reason."""
    by_reason: dict[Reason, list[str]] = {}
    for name, reason in remedy.needs.items():
        by_reason.setdefault(reason, []).append(name)
    said: list[Words] = []
    for reason, names in by_reason.items():
        most: tuple[str | Span, ...] = (*listed(names[:-1]), " and ") if names[1:] else ()
        are = "are" if names[1:] else "is"
        said.append((
            "the value needs ", *most, code(names[-1]), f", which {are} unknown here ({HOW_TO_LEARN[reason]})",
        ))  # fmt: skip
    return said


def correction(report: Report, whole: bool = False) -> tuple[Heading | Labelled, ...]:
    """The corrected command, to be pasted, and in what it differs."""
    corrected = report.correction
    if corrected is None:
        return ()
    rules = tuple(dict.fromkeys(change.rule for change in corrected.changes))
    is_elsewhere = corrected.now == report.command  # in its --config file, or in its environment
    body: list[Diff | Command | Lines] = []
    # On a terminal the changes of a single finding stand with its fix.
    if corrected.settings:
        body.append(Diff(corrected.settings))
    elif corrected.changes and (whole or len(rules) > 1 or is_elsewhere):
        body.append(Diff(changes.differences(corrected)))
    if not is_elsewhere and not corrected.settings:
        body.append(Command(corrected.now, report.variables))
    said: list[Words] = []
    if any(source.kind == "command" for source in report.sources):
        said.append("as a patch of the given file: --format patch")
    elif any(source.kind == "host" for source in report.sources) and not is_elsewhere:
        said.append("its environment is not in it; what starts it, corrected: --command FILE --format patch")
    for cap in corrected.next_caps:
        fixed = "the next limit, fixed with it: " if cap.is_cured else "the next limit, which no flag here takes away: "
        said.append((fixed, code(cap.rule), f": {cap.says}"))
    for left in corrected.left_out:
        said.append(("does not fix ", code(left.rule), f" ({left.do}): {left.reason}"))
    body += [Lines(tuple(said))] if said else []
    what = "with these changes" if is_elsewhere else "with this command"
    if corrected.settings:
        what = "the program, with this in its call"
    start = Labelled("Restart", (f"{what}, to fix ", *listed(rules), ":"), tuple(body))
    return Heading("The corrected command, after one restart", signpost=False), start

"""The corrections as patches, each in the form its command came in, behind comments that say why and how.

Several YAML documents are parted by `---`. Nothing is printed where nothing is to be changed: see `remark`.
"""

from __future__ import annotations

from collections.abc import Iterator

from vllm_doctor.model.reading import Value
from vllm_doctor.model.report import Change, Patch, Report
from vllm_doctor.text import words

_YAML = ("config", "compose", "kubernetes", "helm")
_MASK = "[masked]"
_READ_ONLY = "[masked] stands for a secret: put it back before this is used"


def render(report: Report) -> str:
    """All patches; "" where there is none."""
    texts = ["".join(f"{line}\n" for line in _lines(patch)) for patch in report.patches]
    is_yaml = [patch.form in _YAML and bool(patch.lines) for patch in report.patches]
    text = ""
    for place, part in enumerate(texts):
        text += ("" if not place else "---\n" if is_yaml[place] and any(is_yaml[:place]) else "\n") + part
    return text


def remark(report: Report) -> str:
    """What to tell a person beside it, in a line; "" where the patch says all."""
    if not report.patches and report.correction is not None:
        return "the written command has already what is advised"
    if not report.patches:
        is_seen = report.command or any(source.kind == "command" for source in report.sources)
        return "no change of the command is advised" if is_seen else "no command was found, so there is none to change"
    return "; ".join(patch.problem for patch in report.patches if patch.problem)


def _lines(patch: Patch) -> Iterator[str]:
    for place, changes in patch.changes.items():
        yield _comment(": ".join(dict.fromkeys(part for part in (patch.file, place) if part)))
        for change in changes:
            yield _comment(_says(change))
    if patch.problem:
        yield _comment(f"no patch: {patch.problem}")
    for text in patch.apply:
        yield _comment(text)
    if any(_MASK in line for line in patch.lines):
        yield _comment(_READ_ONLY)
        if patch.form in (*_YAML, "systemd"):
            return
    yield from patch.lines


def _says(change: Change) -> str:
    """ "--max-num-seqs 64 -> 10 [preemption]"."""
    return f"{change.name} {_value(change.was)} -> {_value(change.now)} [{change.rule}]"


def _value(value: Value | None) -> str:
    if value is None:
        return "not set"
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(words.plain(value))


def _comment(text: str) -> str:
    return "# " + " ".join(text.split())

"""Commands within lines of another language, changed there: a diff of the file that its own reader has read again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vllm_doctor.launch import rewrite
from vllm_doctor.launch.patches.in_force import not_in_force
from vllm_doctor.launch.patches.lines import diff_of_file
from vllm_doctor.launch.region import Region
from vllm_doctor.launch.rewrite import SECRET, UnwritableError
from vllm_doctor.launch.start import Start, Written, judged
from vllm_doctor.model.report import Change

_OTHERWISE = "read again, the file would not say it"


def in_regions(
    text: str, path: str | None, written: Sequence[Written], changes: Mapping[int, Sequence[Change]]
) -> tuple[str, ...]:
    """The diff. Raises UnwritableError, and what reading the changed text raises."""
    new, launches, again = text, [], list(written)
    for number, given in changes.items():
        holder, now = written[number].holder, again[number].holder
        if path is None or not isinstance(holder, Region) or not isinstance(now, Region) or holder.text != text:
            raise UnwritableError("it is no file of its own")
        launches.append(holder.launch)
        new = now.edited(rewrite.wanted(given))
        again = list(now.again(new))
        if len(again) != len(written):
            raise UnwritableError(_OTHERWISE)
    for number, (was, now_read) in enumerate(zip(written, again, strict=True)):
        if not _is_as_wanted(judged(was), judged(now_read), changes.get(number, ())):
            raise UnwritableError(_OTHERWISE)
    lines = diff_of_file(text, new, launches, path or "")
    if not lines:
        raise UnwritableError(SECRET if text.endswith("\n") else "its last line has no end")
    return lines


def _is_as_wanted(was: Start, now: Start, changes: Sequence[Change]) -> bool:
    """Whether it has the changes, and all else as it was."""
    names = {change.name for change in changes}
    kept = [{name: value for name, value in start.command.flags.items() if name not in names} for start in (was, now)]
    variables = [
        {name: value for name, value in start.environment.items() if name not in names} for start in (was, now)
    ]
    is_kept = kept[0] == kept[1] and variables[0] == variables[1] and was.command.model == now.command.model
    return is_kept and not not_in_force(now, changes)

"""The version of a start: as it is told, else the releases that have what it is given; and the flags that are strange
to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from vllm_doctor.launch.start import Form, Start, version_of
from vllm_doctor.model.reading import Known, Reading, Value
from vllm_doctor.vllm import dating, flags
from vllm_doctor.vllm.dating import Dating

_NAMED = 3
_NO_FLAGS = frozenset({"--omni"})
"""What vLLM's main looks for before its parser does."""

_SHORT = re.compile(r"-[a-zA-Z]+")
_SERVE, _SERVE_SINCE = "vllm serve", (0, 5, 5)
_OWN_IMAGE = re.compile(
    r"(?:.*/)?vllm-openai[\w-]*:v?\d[\d.]*(?:\.post\d+)?(?:[-_](?:x86_64|aarch64|arm64|amd64|cu\d+|ubuntu\d+|rocm[\d.]*))*"
)
"""An image of vLLM's own; what others build under its version may have other flags."""


def dating_of(start: Start) -> Dating:
    """Of which releases the start can be, as far as its words tell."""
    short = [text.partition("=")[0] for text in start.argv if _SHORT.match(text)]
    clues = [*dating.of_flags(_asked(start.written_flags)), *dating.of_flags(dict.fromkeys(short))]
    hints = [*dating.of_values(start.command.flags), *dating.of_environment(start.environment)]
    found = dating.dated(clues, hints)
    if found.by and start.form is Form.SHELL and start.command.program == _SERVE:  # by itself it is too little to tell
        return dating.dated(clues, [*hints, dating.between(_SERVE, _SERVE_SINCE, None)])
    return found


def version(start: Start) -> str:
    """The version by which the start is judged: the one that is told, else the newest release that is possible."""
    return start.version or dating_of(start).newest


def facts(start: Start) -> dict[str, Reading]:
    """The flags that its vLLM does not have; and, where no version is told, the releases that have all of them."""
    if start.version is not None:
        return strangers(start.written_flags, start.version, _is_release(start))
    found = dating_of(start)
    told = strangers(start.written_flags, found.newest, False)
    told["flags_version_told"] = Known(0.0, origin="cmdline")
    said: dict[str, Value] = {
        "flags_contradiction_says": found.contradiction,
        "flags_window_says": found.says,
        "flags_window": " ".join(found.releases),
    }
    return told | {name: Known(value, origin="cmdline") for name, value in said.items() if value}


def strangers(written: Sequence[str], version: str, is_release: bool) -> dict[str, Reading]:
    """The flags of a start that this version does not have. `is_release`: whether it is exactly that release of vLLM's
    own, and not what somebody built."""
    strange = [name for name in _asked(written) if flags.has(version, name) is False]
    told: dict[str, Value] = {
        "flags_unknown": float(len(strange)),
        "flags_in_no_version": float(sum(not flags.is_flag(name) for name in strange)),
        "flags_judged_as": flags.judged_as(version) or version,
        "flags_version_told": 1.0,
        "flags_of_release": float(is_release),
        "flags_written": " ".join(name for name in written if name.split() == [name]),
    }
    if strange:
        if names := [name for name in strange if name.split() == [name]]:  # else it is no flag of anybody
            told["flags_unknown_names"] = " ".join(names)
        told["flags_unknown_says"] = "; ".join(_instead(version, name) for name in strange[:_NAMED])
    return {name: Known(value, origin="cmdline") for name, value in told.items()}


def by_version(command: Mapping[str, Reading], version: str) -> dict[str, Reading]:
    """The same facts of a start, whose own are given, where another source tells the version: of a server that runs,
    so that its words are not those of this start, or its vLLM is not quite that release."""
    written = command.get("flags_written")
    names = str(written.value).split() if isinstance(written, Known) else []
    return strangers(names, version, False)


def _asked(written: Sequence[str]) -> list[str]:
    return [name for name in written if name not in _NO_FLAGS]


def _is_release(start: Start) -> bool:
    """Whether the version that is told is one of vLLM's own releases, as whose image or which the user says it is."""
    if start.version is None or not flags.is_release(start.version):
        return False
    is_of_image = start.image is not None and version_of(start.image) is not None
    return not is_of_image or _OWN_IMAGE.fullmatch((start.image or "").partition("@")[0]) is not None


def _instead(version: str, name: str) -> str:
    """ "--swap-space (in 0.4.3 to 0.17.1; gone: …)"."""
    spans = flags.spans(name)
    replacement, near = flags.replacement(name), flags.nearest(version, name)
    stretches = [first if first == last else f"{first} to {last}" for first, last in spans]
    was = f"in {' and '.join(stretches)}" if spans else "in no release; a fork or a development build may have it"
    if replacement is not None:
        return f"{name} ({was}; {replacement.instead if ':' in replacement.instead else f'now {replacement.instead}'})"
    return f"{name} ({was}{f'; nearest: {near[0]}' if near else ''})"

"""vLLM's flags alone, as people quote them: `... -tp 8 --max-model-len 32000`, a model's name and flags, a column."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from vllm_doctor.launch import docker, shell, unwrap
from vllm_doctor.launch.start import Form, Launch, Word, Written
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.vllm import flags as catalogue
from vllm_doctor.vllm.command_line import flag_of_key, is_python

_MOST_LINES = 200
_FLAG = re.compile(r"--?[A-Za-z]")
_SHORT = frozenset({"-tp", "-pp", "-dp", "-q", "-ep", "-cc", "-dcp", "-asc"})
_OPEN = frozenset({"...", "…", "[...]", "<...>"})
_BULLET = re.compile(r"[ \t]*(?:[-*+•>][ \t]+|\d{1,2}[.)][ \t]+)?`?")
_BEGINS = re.compile(r"\s{0,1000}(?:[-*+•][ \t]+)?[`\"']?--?[A-Za-z]")
_MODEL = re.compile(r"[\w.-]{1,80}/[\w.-]{1,80}|[A-Za-z][\w.-]{2,80}|(?:/[\w.-]{1,80}){1,12}/?")
_VARIABLE = re.compile(r"\$\{?[A-Za-z_]\w{0,80}\}?|<[A-Za-z][\w.-]{0,80}>")
_LEFT_OUT = re.compile(rf"{_VARIABLE.pattern}|\.\.\.|…")
"""In a value: `{... "num_speculative_tokens": 3}`."""
_SHARE = 0.5
_REMARK = re.compile(r"\([A-Za-z][^()]{0,80}\)")
_REMARK_WORDS = 42
"""At most, with the blanks between them."""
_NOTE = "the program is not in the text: these were read as flags of `vllm serve`"
_RUN = ("docker", "run")
_RUN_NOTE = "the program is not in the text: this was read as what follows `docker run`"


def begins(text: str) -> bool:
    """Whether it begins with a flag, perhaps as the item of a list."""
    return _BEGINS.match(text) is not None


def starts(text: str, line: int = 1) -> list[Written]:
    """One start, where the text holds flags, most of them vLLM's, and a model's name before them at most."""
    lines = text.split("\n", _MOST_LINES + 1)
    if len(lines) > _MOST_LINES:
        return []
    words = list(_words(lines, line))
    if any(docker.is_image(word.text) for word in words):
        return _behind_run(words)
    at = next((place for place, word in enumerate(words) if _FLAG.match(word.text)), len(words))
    before = [word for word in words[:at] if word.text not in _OPEN]
    flags = [word.text for word in words if _FLAG.match(word.text)]
    known = [flag for flag in flags if _is_known(flag)]
    of_vllm = {flag.partition("=")[0].replace("_", "-") for flag in known} - docker.OF_ANY_SERVER
    if not of_vllm or len(known) < _SHARE * len(flags) or len(before) > 1:
        return []
    if before and (not _MODEL.fullmatch(before[0].text) or is_python([before[0].text])):
        return []
    first = words[0].line
    rest = [word for word in words[at:] if word.text not in _OPEN]
    launch = Launch([Word("vllm", first), Word("serve", first), *before, *rest], Form.FLAGS, notes=(_NOTE,))
    return [Written.of(launch, place=f"line {first}", is_open=_has_gap(words))]


def _behind_run(words: Sequence[Word]) -> list[Written]:
    """What a container runs, of which the options, the image and its arguments were copied."""
    first = words[0].line
    run = [*(Word(text, first) for text in _RUN), *words]
    launches = unwrap.of_words(run, Form.DOCKER_RUN, {})
    return [
        Written.of(replace(launch, notes=(*launch.notes, _RUN_NOTE)), place=f"line {first}", is_open=_has_gap(words))
        for launch in launches
    ]


def _has_gap(words: Sequence[Word]) -> bool:
    return any(word.text in _OPEN for word in words)


def _words(lines: list[str], line: int) -> Iterator[Word]:
    for number, text in enumerate(lines, line):
        bare = text[_bullet(text) :].rstrip().rstrip("`\\,").rstrip()
        if bare and not bare.startswith("#"):
            for word in _without_remarks(shell.words(bare.rstrip(","), number)[0]):
                is_whole = word.text in _OPEN or _FLAG.match(word.text)
                pattern = _VARIABLE if is_whole else _LEFT_OUT
                yield Word(pattern.sub(lambda match: mark(match[0]), word.text), number)


def _without_remarks(words: Sequence[Word]) -> Iterator[Word]:
    """The words without those in a bracket, "(max_pixels 3145728)", which is no flag's value."""
    at = 0
    while at < len(words):
        end = _bracket_ends(words, at) if words[at].text.startswith("(") else None
        if end is not None and _REMARK.fullmatch(" ".join(word.text for word in words[at : end + 1])):
            at = end
        else:
            yield words[at]
        at += 1


def _bracket_ends(words: Sequence[Word], at: int) -> int | None:
    last = min(at + _REMARK_WORDS, len(words))
    return next((place for place in range(at, last) if words[place].text.endswith(")")), None)


def _bullet(text: str) -> int:
    match = _BULLET.match(text)
    return match.end() if match else 0


def _is_known(text: str) -> bool:
    name = text.partition("=")[0]
    if not name.startswith("--"):
        return name in _SHORT
    flag = flag_of_key(name[2:]).partition(".")[0]
    return catalogue.is_flag(flag) or catalogue.is_flag(flag.replace("--no-", "--", 1))

"""Which flags and environment variables a vLLM version has.

data/flags.tsv, data/environment.tsv: read from the parser, and from vllm/envs.py, of every release from 0.8.0 on;
made by tests/lab/release (docs/releases.md says how). Before 0.8.0 only the names in a few samples are known. Nothing
is read until the first question.

A flag may be written in each way that this version's parser takes: `--max_num_seqs`, `-tp`, `--no-x` of an on-off
switch, `--x=7`, `--compilation-config.mode` (the key is not checked), `-O3`. A mere beginning (`--max-num-s`), which
vLLM's parser takes too where it is the beginning of one flag only, is not taken for the flag here: see
`Parser.abbreviated`. The parser meant is that of `vllm serve`, not of `python -m vllm.entrypoints.openai.api_server`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path

from vllm_doctor.model import outside
from vllm_doctor.vllm.release_table import History, Release, Row, number, release

__all__ = ["Release", "number", "release"]  # the versions of other modules too

_DATA = Path(__file__).parent / "data"
_FLAGS = History(_DATA / "flags.tsv")
_ENVIRONMENT = History(_DATA / "environment.tsv")
_KIND, _CHOICES, _DEFAULT, _NOTE = range(4)
_ON_OFF = "on-off"
_OPTIMIZE = "-O"
_NEAR = 3
_RELEASE = re.compile(r"v?\d{1,9}(?:\.\d{1,9}){1,3}(?:\.post\d{1,9})?")
_LONG_WORD = 6  # letters: shorter ones are in too many names


@dataclass(frozen=True)
class Flag:
    """A flag of one version.

    `name`: its first long spelling. `off`: the spellings that turn an on-off switch off: --no-x, and from 0.33.0 on
    --disable-x of --enable-x, and the other way round. `kind`: switch, on-off, int, size (an int that may be
    written 2k), float, text, bool, json, "list of …", "optional …" (may stand without a value), "… or text"; None: not
    known. `choices`: empty where any value is taken. `default`: "None" where vLLM decides later; None: not known.
    `since`, `until`: the first and the last release with it, of the stretch of releases that this version lies in;
    `since` None: not known; `until` None: the newest known release has it.
    """

    name: str
    spellings: tuple[str, ...]
    off: tuple[str, ...]
    kind: str | None
    choices: tuple[str, ...]
    default: str | None
    is_deprecated: bool
    since: str | None
    until: str | None


@dataclass(frozen=True)
class Variable:
    """An environment variable of one version; `default` None: not known, or another on each machine."""

    name: str
    default: str | None
    since: str
    until: str | None


@dataclass(frozen=True)
class Replacement:
    """What stands in for a flag, a variable or a metric that is gone. `instead`: "--x …", or "gone: …" and why."""

    name: str
    instead: str
    source: str


@dataclass(frozen=True)
class Parser:
    """All that the parser of one vLLM takes. `syntax`: the ways of writing a flag, as data/flags.tsv has them."""

    version: str
    flags: tuple[Flag, ...]
    syntax: frozenset[str]

    @cached_property
    def _by_spelling(self) -> dict[str, Flag]:
        return {spelling: flag for flag in self.flags for spelling in (*flag.spellings, *flag.off)}

    def flag(self, name: str) -> Flag | None:
        """The flag as it is written; None: it would not be taken."""
        found = self._by_spelling.get(self._spelling(name))
        return found if found and _fits(name, found.kind) else None

    def nearest(self, name: str) -> list[str]:
        """At most three flags that are written much like the name, nearest first."""
        return near(self._spelling(name), (spelling for spelling in self._by_spelling if spelling.startswith("--")))

    def abbreviated(self, name: str) -> str | None:
        """The flag whose beginning this is, where the parser takes it so: where it is that of one spelling only."""
        written = self._spelling(name)
        longer = [spelling for spelling in self._by_spelling if spelling.startswith(written)]
        is_short = len(longer) == 1 and len(written) > 2 and written.startswith("--") and written not in longer
        return longer[0] if is_short and "abbreviation" in self.syntax else None

    def _spelling(self, name: str) -> str:
        return _spelling(name, self._by_spelling, self.syntax.__contains__)


def newest() -> str:
    """The newest release that is known."""
    return _FLAGS.releases[-1]


def first() -> str:
    """The first release of which all is known."""
    return _FLAGS.releases[len(_FLAGS.samples)]


def releases() -> tuple[str, ...]:
    """The known releases, oldest first: the samples, then every release."""
    return _FLAGS.releases


def samples() -> tuple[str, ...]:
    """The releases before that, of which only the names of flags and metrics are known, oldest first."""
    return _FLAGS.samples


def judged_as(version: str) -> str | None:
    """The known release that answers for a version; None for no version, and one older than all that is known.

    A release answers for itself, 0.8.5.post1 and 0.10.1.1 too. What leads to a known release (0.11.1rc3) is judged as
    that; any other (0.34.0, 0.32.1.dev5+gabc) as the newest known before it.
    """
    place = _FLAGS.judged_at(version)
    return None if place is None else _FLAGS.releases[place]


def judgement(version: str) -> str:
    """What the reader must know of `judged_as`, in a line; "" where the version itself is known."""
    place, around = _FLAGS.judged_at(version), _FLAGS.around(version)
    if place is None:
        return f"{version}: nothing is known of vLLM before {_FLAGS.releases[0]}"
    known = _FLAGS.releases[place]
    if _FLAGS.is_known(version):
        return "" if known not in _FLAGS.samples else f"of {known} only the names of the flags are known"
    if place == len(_FLAGS.releases) - 1:
        return f"{version}: judged as {known}, the newest known"
    if known in _FLAGS.samples:
        return f"{version}: judged as {known}; of vLLM before {first()} few releases are known"
    return f"{version}: judged as {known}, the release {'it leads to' if place == around[-1] else 'before it'}"


def names() -> frozenset[str]:
    """Every flag that any known release has, by its long names, without the `--no-` forms."""
    return frozenset(name for name in _FLAGS.names() if name.startswith("--"))


def is_flag(flag: str) -> bool:
    """Whether any known release takes the flag, as it is written."""
    return any(True for _ in _rows(flag, None))


def has(version: str | None, flag: str) -> bool | None:
    """Whether that vLLM takes the flag, as it is written.

    None: not known. That is so of a version that is not known itself, where the releases around it differ, and of one
    that is newer or older than all, where the flag may have gone or come.
    """
    return _FLAGS.has(version, lambda place: any(True for _ in _rows(flag, place)))


def flag(version: str, name: str) -> Flag | None:
    """The flag of the version (as `judged_as`); None where it has none of that name, or nothing is known."""
    place = _FLAGS.judged_at(version)
    row = None if place is None else next(_rows(name, place), None)
    return None if row is None or place is None else _flag(row, place)


def parser(version: str) -> Parser | None:
    """All flags of the version (as `judged_as`); None where nothing is known of it."""
    place = _FLAGS.judged_at(version)
    return None if place is None else _parser_at(place)


def spans(flag: str) -> tuple[tuple[str, str], ...]:
    """From which release to which the flag, as it is written, is known, oldest first."""
    return _FLAGS.spans(_rows(flag, None))


def value_spans(flag: str, value: str) -> tuple[tuple[str, str], ...]:
    """From which release to which the flag may have the value, where it takes one of a list; () where no release
    lists the value. A release of which no list is known may take it."""
    rows = [(row, row.cell(_CHOICES).split("|")) for row in _rows(flag, None)]
    if not any(value in choices for _, choices in rows):
        return ()
    return _FLAGS.spans(row for row, choices in rows if value in choices or choices == [""])


def is_release(version: str) -> bool:
    """Whether the version is a release, no newer than the newest known: no candidate, no development build, no fork."""
    asked = _RELEASE.fullmatch(version)
    return asked is not None and _FLAGS.judged_at(version) is not None and not _FLAGS.is_newer(version)


def is_named_release(version: str) -> bool:
    """Whether it is written as a release is called, 0.26.0: a known one, or any older than the first of which all is
    known, as of those only samples are."""
    wanted, oldest = number(version), number(first())
    assert oldest is not None
    return version in releases() or (
        wanted is not None and wanted < oldest and version[:1] != "v" and is_release(version)
    )


def is_same(one: object, other: object) -> bool:
    """Whether two values mean the same, whatever their spelling: 0.9 and "0.90", True and "true", JSON by its keys."""
    return _meant(one) == _meant(other)


def nearest(version: str, name: str) -> list[str]:
    """At most three flags of the version (as `judged_as`) that are written much like the name, nearest first."""
    known = parser(version)
    return known.nearest(name) if known else []


def is_within(version: str, since: str, until: str) -> bool:
    """Whether the release that answers for the version (as `judged_as`) is one from `since` to `until`, "": and on."""
    place = _FLAGS.judged_at(version)
    return place is not None and _FLAGS.place(since) <= place <= _FLAGS.place(until or newest())


def replacement(name: str) -> Replacement | None:
    """What to write instead of a flag, variable or metric that is gone; None where nothing is said of it."""
    spelling = _spelling(name, _FLAGS.names(), _any_syntax)
    written = (name, spelling, "--" + spelling.removeprefix("--no-"), name.removesuffix("_total"), name + "_total")
    return next((_replaced()[text] for text in written if text in _replaced()), None)


def environment(version: str, name: str) -> Variable | None:
    """The environment variable of the version (as `judged_as`); None where it has none of that name."""
    place = _ENVIRONMENT.judged_at(version)
    row = next((row for row in _ENVIRONMENT.rows(name) if place is not None and row.is_at(place)), None)
    if row is None or place is None:
        return None
    return Variable(name, _value(row.cell(0)), *_ENVIRONMENT.stretch(name, place))


def nearest_environment(version: str, name: str) -> list[str]:
    """At most three variables of the version (as `judged_as`) with much the same name, nearest first."""
    place = _ENVIRONMENT.judged_at(version)
    return [] if place is None else near(name, (row.names[0] for row in _ENVIRONMENT.rows_at(place)))


def environment_spans(name: str) -> tuple[tuple[str, str], ...]:
    """From which release to which the environment variable is known, oldest first."""
    return _ENVIRONMENT.spans(_ENVIRONMENT.rows(name))


def near(name: str, names: Iterable[str]) -> list[str]:
    """At most three of the names that are written much like this one, nearest first.

    Where none is: those that share its longest word, as --speculative-config with --num-speculative-samples.
    """
    from difflib import SequenceMatcher, get_close_matches

    known = sorted(names)
    found = get_close_matches(name, known, _NEAR, 0.7)
    word = max(re.split(r"[^a-zA-Z]+", name), key=len)
    if found or len(word) < _LONG_WORD:
        return found
    sharing = [other for other in known if word in re.split(r"[^a-zA-Z]+", other)]
    return sorted(sharing, key=lambda other: -SequenceMatcher(None, name, other).ratio())[:_NEAR]


@lru_cache(maxsize=4)
def _parser_at(place: int) -> Parser:
    rows = list(_FLAGS.rows_at(place))
    syntax = frozenset(row.names[0].removeprefix(":") for row in rows if row.names[0].startswith(":"))
    return Parser(
        _FLAGS.releases[place], tuple(_flag(row, place) for row in rows if row.names[0].startswith("-")), syntax
    )


def _rows(written: str, place: int | None) -> Iterator[Row]:
    """The rows of a flag as it is written, in one release or (place None) in any."""

    def takes(syntax: str) -> bool:
        return place is None or any(row.is_at(place) for row in _FLAGS.rows(f":{syntax}"))

    spelling = _spelling(written, _FLAGS.names(), takes)
    for row in _FLAGS.rows(spelling):
        if (place is None or row.is_at(place)) and _fits(written, row.cell(_KIND)):
            yield row
    if spelling.startswith("--no-"):
        for row in _FLAGS.rows("--" + spelling.removeprefix("--no-")):
            is_off = row.cell(_KIND) == "" or spelling in _off(row)
            if is_off and (place is None or row.is_at(place)):
                yield row


def _spelling(written: str, names: Container[str], takes: Callable[[str], bool]) -> str:
    """The name that is meant, of these; the text itself where this syntax is not taken."""
    text = written.partition("=")[0]
    base, dot, inner = text.partition(".")
    if text.startswith("--"):
        return base.replace("_", "-") if not dot or (inner and takes("dotted")) else text
    if dot and base in names and base != _OPTIMIZE:
        return base if inner and takes("dotted-short") else text
    if text.startswith(_OPTIMIZE):
        if dot:
            return "--compilation-config" if takes("-O.") else text
        return "--optimization-level" if takes("-O3") else _OPTIMIZE
    return text[:2] if text not in names and text[:2] in names else text  # -qawq


def _fits(written: str, kind: str | None) -> bool:
    """Whether a dotted name, `--x.key`, is one of a flag that takes JSON."""
    return "." not in written.partition("=")[0] or not kind or "json" in kind


def _any_syntax(_: str) -> bool:
    return True


def _off(row: Row) -> tuple[str, ...]:
    """The spellings for off: of an on-off switch always the `--no-` forms."""
    if row.cell(_KIND) != _ON_OFF:
        return row.off
    return (*("--no-" + name.removeprefix("--") for name in row.names if name.startswith("--")), *row.off)


def _flag(row: Row, place: int) -> Flag:
    choices = row.cell(_CHOICES)
    return Flag(
        row.names[0],
        row.names,
        _off(row),
        row.cell(_KIND) or None,
        tuple(choices.split("|")) if choices else (),
        _value(row.cell(_DEFAULT)),
        row.cell(_NOTE) == "deprecated",
        *_FLAGS.stretch(row.names[0], place),
    )


def _value(cell: str) -> str | None:
    return "" if cell == '""' else cell or None


@cache
def _replaced() -> dict[str, Replacement]:
    lines = (_DATA / "replaced.tsv").read_text("utf-8").splitlines()
    rows = [line.split("\t") for line in lines if line and not line.startswith("#")]
    return {name: Replacement(name, instead, source) for name, instead, source in rows}


def _meant(value: object) -> object:
    if isinstance(value, str):
        try:
            value = outside.json(value.lower() if value.lower() in ("true", "false") else value)
        except ValueError:
            return value
    if isinstance(value, bool):
        return ("switch", value)  # True is no 1
    return float(value) if isinstance(value, int) and abs(value) < 2**53 else value

"""What stands around a log line of vLLM: what Docker, Kubernetes, journald and others write before it, or it into.

Each wrapper is known by how it begins, and taken off one at a time, from outside in. What none fits is the line.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from vllm_doctor.model import outside
from vllm_doctor.sources.log.bytes_document import NESTED, TEXTS, TIMES
from vllm_doctor.sources.log.entry_clock import ISO, SYSLOG, TIME, Stamp, iso_stamp, posix_stamp, stamp_of

BLANK = " \t\ufeff\ufffd"  # what a line may begin with, before a wrapper: a byte order mark, and what is left of one
LEVEL = r"(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)"


@dataclass(slots=True)
class Wrapping:
    """What the wrappers taken off so far say of the line.

    `stamp`: of the outermost with a date: all of a log's lines should be timed by one clock, and not every line holds
    another. `level` and `source` come from a logger that writes JSON; they are of the line only if it has none itself.
    """

    stamp: Stamp | None = None
    origin: str = ""
    process: str = ""
    pid: int | None = None
    level: str = ""
    source: str = ""

    def copy(self) -> Wrapping:
        return Wrapping(self.stamp, self.origin, self.process, self.pid, self.level, self.source)

    def set_stamp(self, stamp: Stamp | None) -> None:
        if self.stamp is None or (self.stamp.month is None and stamp is not None and stamp.month is not None):
            self.stamp = stamp

    def set_origin(self, *names: str | None) -> None:
        """The outermost that names one: a wrapper inside knows less of where it runs."""
        self.origin = self.origin or "/".join(name for name in names if name)


# --- colours ---------------------------------------------------------------------------------------------------------

_ESCAPES = re.compile(
    "\x1b(?:"
    r"\[[0-?]*[ -/]*[@-~]?"
    "|[]_PX^][^\x07\x1b]{0,200}(?:\x07|\x1b\\\\)?"  # titles and the like; Buildkite writes its times so
    "|[ -/]*[0-~]?)"
)
# As editors, rsyslog, and copying from a terminal show the escape character, or with nothing left of it.
_REMNANTS = re.compile(r"(?:␛|\^\[|\ufffd|#033|ESC|\\(?:033|x1b|u001b|e))?\[[0-9]{1,3}(?:;[0-9]{1,3}){0,8}m")


def without_colours(text: str) -> str:
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    # "[5m]" may be text (PromQL): a remnant is only known by the reset that ends every colour
    if "[0m" in text or "[0;0m" in text:
        text = _REMNANTS.sub("", text)
    return text


# --- before the line -------------------------------------------------------------------------------------------------

_HOST = r"(?P<host>[\w.-]{1,255}) (?P<tag>[^\s\[\]:]{1,100})"
# The space that a wrapper ends with is its own, further ones are the line's: tracebacks are indented.
_AFTER_STAMP = (
    r"(?: (?:stdout|stderr) [FP](?::\S{0,40})?(?: |$)"  # CRI
    rf"| {_HOST}\[[0-9]{{1,10}}\]: ?"  # journald's short-iso
    r"|[ \t]{1,8}[-|][ \t]{1,8}"  # a format of somebody's own, or loguru's
    r"|:? |\t|$)"
)
_DATED = re.compile(rf"{ISO}{_AFTER_STAMP}", re.ASCII)
_WEEKDAY_DATED = re.compile(rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {ISO}(?: [A-Z]{{2,5}})?{_AFTER_STAMP}", re.ASCII)
_DATED_IN_BRACKETS = re.compile(rf"\[{ISO}\](?::? |\t|$)", re.ASCII)
_TIMED_IN_BRACKETS = re.compile(rf"\[{TIME}\](?: |\t|$)", re.ASCII)
_TIMED = re.compile(rf"{TIME}(?:[ \t]{{1,8}}[-|][ \t]{{1,8}}| |\t|$)", re.ASCII)
# "Nov 20 10:15:00 node-1 vllm[812]: "; moreutils' ts writes only the time
_SYSLOG = re.compile(rf"{SYSLOG} (?:{_HOST}(?:\[[0-9]{{1,10}}\])?: ?)?", re.ASCII)
# journald's "short" form names the month in the language of who reads it. The time is then left to vLLM's own.
_LOCAL_JOURNAL = re.compile(
    r"(?:[^\W\d_]{2,10}\.?|[0-9]{1,2}月) {1,2}[0-9]{1,2} [0-9]{2}:[0-9]{2}:[0-9]{2} "
    rf"{_HOST}\[[0-9]{{1,10}}\]: ?"
)
_UNIX_JOURNAL = re.compile(rf"(?P<unix>[0-9]{{10}}\.[0-9]{{6}}) {_HOST}\[[0-9]{{1,10}}\]: ?", re.ASCII)
# "<13>Nov 20 …" and RFC 5424's "<30>1 2025-11-20T10:15:00Z node-1 vllm 812 - - "
_PRIORITY = re.compile(
    rf"<[0-9]{{1,3}}>(?:1 (?:{ISO}|-) (?P<host>\S{{1,255}}) (?P<tag>\S{{1,48}}) \S{{1,128}} \S{{1,32}}"
    r" (?:-|(?:\[[^\]]{0,1000}\]){1,20})(?: |$))?",
    re.ASCII,
)
_POD = re.compile(r"\[pod/(?P<pod>[\w.-]{1,253})/(?P<container>[\w.-]{1,63})\](?: |$)", re.ASCII)
_RANK = re.compile(r"\[rank[0-9]{1,5}\]: ")  # torch's, before each line of an uncaught exception
_EXPORTED = re.compile(r"[0-9]{13,19}\t(?=[0-9]{4}-)")  # Grafana's, before its time
# logcli's, behind its time
_LABELS = re.compile(r'\{(?P<labels>(?:[A-Za-z_][\w.]{0,60}="(?:[^"\\\n]|\\.){0,250}+"(?:, ?)?){1,40}+)\} ')
_LABEL = re.compile(r'(?<![\w.])(pod|container)(?:_name)?="([^"\\]{1,253})"')
_QUOTE = re.compile(r"(?:>|&gt;)[ \t]?|`{1,3}")  # of mail and Markdown
_JOB = re.compile(r"[^\t]{1,200}\t[^\t]{1,200}\t\ufeff?(?=[0-9]{4}-)")  # gh run view --log
# stern and Loki's: a pod's name is known by the hashes in it, or by that a line of vLLM's follows
_HASHED_POD = re.compile(
    r"(?P<pod>[a-z0-9][a-z0-9.-]{0,200}-[bcdf-hj-np-tv-z2456789]{8,10}-[bcdf-hj-np-tv-z2456789]{5})"
    r" (?P<container>[a-z0-9][a-z0-9-]{0,62}) "
)
_OURS = rf"(?=\([^()]{{0,80}}pid=[0-9]|{LEVEL} [0-9]{{2}}-[0-9]{{2}} )"
# Compose pads the names to one width; with a single space, "a | b" may be anything.
_COMPOSE = re.compile(
    rf"(?:[0-9]{{1,3}}\|)?(?P<service>(?!{LEVEL} )[A-Za-z0-9][\w.@-]{{0,100}})"
    rf"(?: {{2,100}}\|(?: |$)| \| (?:(?<=[-_][0-9] \| )|(?={ISO})|{_OURS}))",
    re.ASCII,
)
_NAMELESS_COMPOSE = re.compile(rf"\| {_OURS}")
# "(EngineCore_DP0 pid=272) ", "(VllmWorker rank=0 pid=5) ", Ray's "(RayWorkerWrapper pid=593, ip=10.0.0.3) "
PROCESS = re.compile(
    r"\((?P<name>[^()]{0,80}(?:\([^()]{0,40}\)[^()]{0,20})?)(?<![\w.])pid=(?P<pid>[0-9]{1,10})"
    r"(?:, ip=(?P<ip>[^()\s]{1,64}))?\)(?: |$)",
    re.ASCII,
)
_RAY_DAEMON = re.compile(
    r"\((?P<name>raylet|autoscaler|gcs_server|dashboard)(?: \+[0-9hms]{1,20})?(?:, ip=(?P<ip>[^()\s]{1,64}))?\)(?: |$)"
)


def peel(text: str, around: Wrapping) -> str | None:
    """The text without its outermost wrapper, which is noted in `around`; None where there is none.

    What comes out of JSON may have several lines, and colours of its own.
    """
    for taken_off in _BY_FIRST.get(text[:1], () if text[:1].isascii() else (_local,)):
        rest = taken_off(text, around)
        if rest is not None:
            return rest
    return None


def _process(text: str, around: Wrapping) -> str | None:
    match = PROCESS.match(text)
    if match is None:
        match = _RAY_DAEMON.match(text)
        if match is None:
            return None
    else:
        around.pid = int(match["pid"])
    around.process = _process_name(match["name"].strip()) or around.process
    around.origin = match["ip"] or around.origin  # Ray brings the lines of other hosts: the container is not theirs
    return text[match.end() :]


def _process_name(name: str) -> str:
    """ "VllmWorker rank=0" and "VllmWorker TP0" as newer releases write them."""
    return name.replace(" rank=", "-").replace(" ", "_")


def _stamped(pattern: re.Pattern[str]) -> Callable[[str, Wrapping], str | None]:
    """A wrapper with a time, and perhaps a host and a program."""
    names_host = "host" in pattern.groupindex

    def taken_off(text: str, around: Wrapping) -> str | None:
        match = pattern.match(text)
        if match is None:
            return None
        stamp = stamp_of(match)
        if stamp is None:
            return None
        around.set_stamp(stamp)
        if names_host:
            around.set_origin(match["host"], match["tag"])
        return text[match.end() :]

    return taken_off


def _labelled(text: str, around: Wrapping) -> str | None:
    match = _LABELS.match(text)
    if match is None:
        return None
    named = dict(_LABEL.findall(match["labels"]))
    around.set_origin(named.get("pod"), named.get("container"))
    return text[match.end() :]


def _named(pattern: re.Pattern[str], *groups: str) -> Callable[[str, Wrapping], str | None]:
    """A wrapper without a time."""

    def taken_off(text: str, around: Wrapping) -> str | None:
        match = pattern.match(text)
        if match is None:
            return None
        around.set_origin(*(match[group] for group in groups))
        return text[match.end() :]

    return taken_off


def _priority(text: str, around: Wrapping) -> str | None:
    match = _PRIORITY.match(text)
    if match is None:
        return None
    if match["year"]:
        around.set_stamp(stamp_of(match))
        around.set_origin(match["host"], match["tag"])
    return text[match.end() :]


def _unix_journal(text: str, around: Wrapping) -> str | None:
    match = _UNIX_JOURNAL.match(text)
    if match is None:
        return None
    around.set_stamp(posix_stamp(float(match["unix"])))
    around.set_origin(match["host"], match["tag"])
    return text[match.end() :]


# --- around the line -------------------------------------------------------------------------------------------------

_DOCKERS = {"log", "stream", "time"}
_PODS = ("pod_name", "pod", "kubernetes.pod.name", "kubernetes.pod_name", "podname", "logStreamName", "@logstream")
"""CloudWatch has a stream for each container."""
_CONTAINERS = ("container_name", "container", "kubernetes.container.name", "containername")
_CUT_JSON = re.compile(r'"(?:log|MESSAGE|textPayload|message|line|_raw)": ?"((?:[^"\\]++|\\.)*+)')
_WHOLE_TEXT = re.compile(r'"((?:[^"\\]++|\\.)*+)",?')
_MILLISECONDS, _MICROSECONDS, _NANOSECONDS = 1e11, 1e14, 1e17  # POSIX seconds reach the first in the year 5138


def _in_json(text: str, around: Wrapping) -> str | None:
    try:
        held = outside.json(text)
    except outside.DepthError:
        return None
    except ValueError:
        return _in_cut_json(text)
    if not isinstance(held, dict):
        return None
    fields = cast("dict[str, object]", held)
    for inner in (*(fields.get(name) for name in NESTED), fields):
        if isinstance(inner, dict) and (line := _line_of(inner)) is not None:
            break
    else:
        return None
    around.set_stamp(_json_stamp(fields) or _json_stamp(inner))
    if fields.keys() <= _DOCKERS:
        return line
    around.set_origin(*_json_origin(fields, inner))
    _note_logger(inner, around)
    for key in ("exc_info", "stack_info"):
        traceback = inner.get(key)
        if isinstance(traceback, str) and traceback:
            line = f"{line}\n{traceback}"
    return line


def _line_of(fields: dict[str, object]) -> str | None:
    lower = {name.lower(): value for name, value in fields.items()}
    return next((line for name in TEXTS if name in lower and (line := _text(lower[name])) is not None), None)


def _in_cut_json(text: str) -> str | None:
    """The line, or as much of it as is there: long lines are cut, by the logger or by who reads them."""
    match = _CUT_JSON.search(text)
    if match is None:
        return None
    return _unescaped(match[1])


def _unescaped(text: str) -> str:
    try:
        return cast(str, json.loads(f'"{text}"', strict=False))
    except ValueError:  # cut within an escape, or not escaped as JSON is
        return text


def _in_quotes(text: str, _: Wrapping) -> str | None:
    """A whole line as a text of JSON, as in a list of lines."""
    match = _WHOLE_TEXT.fullmatch(text)
    return _unescaped(match[1]) if match is not None else None


def _text(value: object) -> str | None:
    """journald writes what is not printable, such as colours, as an array of bytes."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(byte, int) and 0 <= byte < 256 for byte in value):
        return bytes(value).decode("utf-8", "replace")
    return None


def _json_stamp(fields: dict[str, object]) -> Stamp | None:
    journal = fields.get("__REALTIME_TIMESTAMP")
    if isinstance(journal, str) and journal.isascii() and journal.isdigit() and len(journal) < 20:
        return posix_stamp(int(journal) / 1e6)
    lower = {name.lower(): value for name, value in fields.items()}
    for key in TIMES:
        value = lower.get(key)
        stamp = None
        if isinstance(value, str):
            is_number = value.isascii() and value.isdigit() and 9 < len(value) < 20
            stamp = posix_stamp(_posix_seconds(float(value))) if is_number else iso_stamp(value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e20:
            stamp = posix_stamp(_posix_seconds(value))
        if stamp is not None:
            return stamp
    return None


def _posix_seconds(value: float) -> float:
    if math.isnan(value):
        return -1.0
    for least, unit in ((_NANOSECONDS, 1e9), (_MICROSECONDS, 1e6), (_MILLISECONDS, 1e3)):
        if value >= least:
            return value / unit
    return value


def _json_origin(fields: dict[str, object], inner: dict[str, object]) -> tuple[str | None, ...]:
    places: list[object] = [fields, fields.get("kubernetes"), inner.get("kubernetes"), _labels(fields.get("labels"))]
    places.append(fields.get("fields"))
    resource = fields.get("resource")
    if isinstance(resource, dict):
        places.append(resource.get("labels"))
    for place in places:
        if isinstance(place, dict):
            pod = _first_name(place, _PODS)
            if pod:
                return pod, _first_name(place, _CONTAINERS)
    program = _name(fields, "CONTAINER_NAME") or _name(fields, "SYSLOG_IDENTIFIER") or _name(fields, "_SYSTEMD_UNIT")
    return _name(fields, "_HOSTNAME"), program or _name(fields, "container_name")


def _labels(written: object) -> object:
    """A table has them as text."""
    if isinstance(written, str) and written.startswith("{"):
        try:
            return outside.json(written)
        except ValueError:
            return None
    return written


def _first_name(place: dict[object, object], keys: tuple[str, ...]) -> str | None:
    for key in keys:
        value = place.get(key)
        name = _name(value, "name") if isinstance(value, dict) else _name(place, key)
        if name:
            return name
    return None


def _name(place: dict[object, object] | dict[str, object], key: str) -> str | None:
    name = cast("dict[object, object]", place).get(key)
    return name[:253] if isinstance(name, str) else None


def _note_logger(fields: dict[str, object], around: Wrapping) -> None:
    """Level and source, where Python's logging wrote the JSON. (A shipper's "level" tells stderr from stdout.)"""
    file = next((name for key in ("filename", "fileinfo", "pathname") if (name := _name(fields, key))), "")
    number = fields.get("lineno")
    level = _name(fields, "levelname") or ((_name(fields, "level") or _name(fields, "severity")) if file else None)
    if level and re.fullmatch(LEVEL, level.upper()):
        around.level = level.upper()
        if file and isinstance(number, int | str):
            around.source = f"{file.rpartition('/')[2]}:{str(number)[:6]}"
        process = _name(fields, "processName")
        if process and process != "MainProcess":
            around.process = around.process or process


# --------------------------------------------------------------------------------------------------------------------

_TakenOff = Callable[[str, Wrapping], str | None]
_compose = _named(_COMPOSE, "service")
_job = _named(_JOB)
_local = _named(_LOCAL_JOURNAL, "host", "tag")
_lower = (_compose, _named(_HASHED_POD, "pod", "container"), _job, _local)
_month, _weekday = _stamped(_SYSLOG), _stamped(_WEEKDAY_DATED)
_BY_FIRST: dict[str, tuple[_TakenOff, ...]] = {
    "(": (_process,),
    "{": (_in_json, _labelled),
    '"': (_in_quotes,),
    **dict.fromkeys(">&`", (_named(_QUOTE),)),
    "[": (
        _named(_POD, "pod", "container"),
        _stamped(_DATED_IN_BRACKETS),
        _stamped(_TIMED_IN_BRACKETS),
        _named(_RANK),
    ),
    "<": (_priority,),
    "|": (_named(_NAMELESS_COMPOSE),),
    **dict.fromkeys("abcdefghijklmnopqrstuvwxyz", _lower),
    **dict.fromkeys("BCEGHIKLPQRUVXYZ", (_compose, _job, _local)),
    **dict.fromkeys("JADNO", (_month, _compose, _job, _local)),
    **dict.fromkeys("TW", (_weekday, _compose, _job, _local)),
    **dict.fromkeys("FMS", (_month, _weekday, _compose, _job, _local)),
    **dict.fromkeys("0123456789", (_stamped(_DATED), _stamped(_TIMED), _unix_journal, _named(_EXPORTED), *_lower)),
}

"""The closed lists that every part of the doctor speaks: what each word means, its rank, and how it is drawn.

Each is a StrEnum: a member is the word of the contract (JSON, rules, exit codes), and its `doc` says what it means.
Members stand in the order of their rank, the worst, the first or the surest first.
"""

from __future__ import annotations

from enum import IntEnum, StrEnum
from typing import Self


class _Word(StrEnum):
    """A word of a closed list, with what it means."""

    doc: str
    """What the word means, for a person."""
    rank: int
    """Its place in the list; 0 is the worst, the first or the surest."""

    def __new__(cls, word: str, doc: str = "") -> Self:
        member = str.__new__(cls, word)
        member._value_ = word
        member.doc, member.rank = doc, len(cls.__members__)
        return member


class Severity(_Word):
    """What a finding costs."""

    CRITICAL = "critical", "it costs a lot now"
    WARNING = "warning", "it costs, or will"
    INFO = "info", "worth knowing"

    @property
    def sign(self) -> str:
        """One character that stands beside the word, so that colour only repeats it."""
        return _SIGNS[self]

    @property
    def colour(self) -> str:
        """One of a terminal's own colours; "" is none."""
        return _COLOURS[self]


class State(_Word):
    """What a rule says of one engine, or of all: a severity, or why there is none."""

    CRITICAL = "critical", Severity.CRITICAL.doc
    WARNING = "warning", Severity.WARNING.doc
    INFO = "info", Severity.INFO.doc
    UNKNOWN = "unknown", "data is missing: never counted as passed"
    OK = "ok", "checked, and passed"
    NOT_APPLICABLE = "not-applicable", "the rule does not apply to this server"

    @property
    def severity(self) -> Severity | None:
        """The severity of a rule that fires."""
        return _SEVERITY.get(self)

    @property
    def sign(self) -> str:
        """One character that stands beside the word, so that colour only repeats it."""
        return _SIGNS[self]

    @property
    def colour(self) -> str:
        """One of a terminal's own colours; "" is none."""
        return _COLOURS[self]


_SEVERITY = {State(severity): severity for severity in Severity}
SEVERITIES = tuple(Severity)
GRAVE = (Severity.CRITICAL, Severity.WARNING)
"""What makes a server's verdict."""

_SIGNS = {"critical": "✖", "warning": "▲", "info": "•", "unknown": "?", "ok": "✔", "not-applicable": " "}
_COLOURS = {"critical": "red", "warning": "yellow", "info": "", "unknown": "cyan", "ok": "green", "not-applicable": ""}


class Role(_Word):
    """What a finding is to the person who reads it. Of what is merely worth knowing, the first is reported first."""

    BLIND = "blind", "without the missing data there is no other verdict"
    NOT_SERVER = "not-server", "the server is healthy; its clients, for example, are not"
    ROOT = "root", "a cause"
    INFO = "info", "worth knowing"
    OPPORTUNITY = "opportunity", "nothing is wrong, but it could be faster"
    SYMPTOM = "symptom", "a cause explains it"


class Fate(_Word):
    """What became of a suspected cause: `explain[].fate` in JSON."""

    KEPT = "kept", "a cause"
    NOTE = "note", "it holds, and is only worth knowing"
    CONSEQUENCE = "consequence", "it holds, and a cause that was kept explains it"
    DROPPED = "dropped", "what was compared excludes it"
    UNKNOWN = "unknown", "data is missing: neither kept nor dropped"
    NOT_APPLICABLE = "not-applicable", "it does not apply to this server"


class Stage(_Word):
    """The order of reasoning: a cause of an earlier stage is reported first."""

    BLIND = "blind", "the statistics are off"
    BROKEN = "broken", "it crashed, or serves wrong answers"
    CLIENT = "client", "who asks limits the load"
    PATH = "path", "a hop in front of the servers, or between them, takes the time"
    HOST = "host", "the machine starves the server"
    LIMIT = "limit", "a limit of the server's own settings is reached"
    MEASUREMENT = "measurement", "a benchmark was made so that its figures mislead"
    SLOW_PATH = "slow-path", "a slower way of computing is taken"
    OPPORTUNITY = "opportunity", "it could do more"


class Confidence(_Word):
    """How sure a finding is, whatever its severity."""

    HIGH = "high", "what is measured admits no other reading"
    MEDIUM = "medium", "another cause would look alike"
    LOW = "low", "a hint"


class Trust(IntEnum):
    """Which source is believed where two say different things: the lowest."""

    MEASURED = 0
    LOGGED = 1  # it was so when the line was written
    WRITTEN = 2  # a command that may, or may not, be the one that runs
    COLLECTED = 3  # on its machine, by a shell that may not be the one that started it
    NAMED = 4  # by the user, on the command line


class SourceKind(_Word):
    """What a source is: `sources[].kind` in JSON."""

    SERVER = "server", "a server's /metrics, live or recorded"
    PROMETHEUS = "prometheus", "a server, as a Prometheus reports it"
    PAGE = "page", "a saved scrape"
    HOST = "host", "the processes and the machine of a server"
    GPU = "gpu", "the GPUs, as their driver reports them"
    LOG = "log", "a server's log"
    COMMAND = "command", "a command as it is written"
    BENCH = "bench", "the result of a benchmark"
    COLLECT_ENV = "collect-env", "what `vllm collect-env` printed of a machine"
    GPU_NAME = "gpu-name", "a GPU that is given by its name only"
    AUTOSCALER = "autoscaler", "the triggers of an autoscaler, as configured"
    TRACE = "trace", "a profiler's trace: what ran on the device, and when"
    GATEWAY = "gateway", "the /metrics of a gateway or a router in front of servers"
    KV_EVENTS = "kv-events", "the blocks that a server's KV cache stores, as it publishes them"
    PROFILE = "profile", "where the server's processes spend their time, by their stacks"
    KUBERNETES = "kubernetes", "the pod of a server, as the API of its cluster reports it"

    @property
    def trust(self) -> Trust:
        """How far what it says is believed."""
        return _TRUST.get(self, Trust.MEASURED)


_TRUST = {
    SourceKind.LOG: Trust.LOGGED,
    SourceKind.COMMAND: Trust.WRITTEN,
    SourceKind.AUTOSCALER: Trust.WRITTEN,
    SourceKind.COLLECT_ENV: Trust.COLLECTED,
    SourceKind.GPU_NAME: Trust.NAMED,
}

SERVERS = frozenset({SourceKind.SERVER, SourceKind.PROMETHEUS, SourceKind.PAGE})
"""The kinds that hold a server's metrics."""
READ = frozenset(
    {
        SourceKind.LOG,
        SourceKind.BENCH,
        SourceKind.COMMAND,
        SourceKind.COLLECT_ENV,
        SourceKind.AUTOSCALER,
        SourceKind.TRACE,
    }
)
"""The kinds that are read, mostly from a file: all of it was there before anybody looked."""


class Hop(_Word):
    """What a source is on the path of a request: `sources[].role` in JSON, and --role."""

    GATEWAY = "gateway", "what clients ask: an API gateway"
    ROUTER = "router", "what picks the server"
    PREFILL = "prefill", "a server that computes prompts for others"
    DECODE = "decode", "a server that generates from a KV cache that it gets"
    SERVER = "server", "a server that does both"


FRONTS = frozenset({Hop.GATEWAY, Hop.ROUTER})
"""What stands in front of the servers."""

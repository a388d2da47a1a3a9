"""The closed lists that every part of the doctor speaks: what each word means, its rank, and how it is drawn.

Each is a StrEnum, so that its value is the word of the contract (JSON, rules, exit codes). Members stand in the order
of their rank, the worst or the first first.
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """What a rule says of one engine: a severity, or why there is none."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"
    UNKNOWN = "unknown"  # signals are missing
    OK = "ok"
    NOT_APPLICABLE = "not-applicable"  # the rule's `applies` does not hold

    @property
    def rank(self) -> int:
        """0 is the worst."""
        return tuple(State).index(self)

    @property
    def sign(self) -> str:
        """One character that stands beside the word, so that colour only repeats it."""
        return _SIGNS[self]

    @property
    def colour(self) -> str:
        """One of a terminal's own colours; "" is none."""
        return _COLOURS.get(self, "")


SEVERITIES = (State.CRITICAL, State.WARNING, State.INFO)
"""The states that are findings."""

_SIGNS = {
    State.CRITICAL: "✖",
    State.WARNING: "▲",
    State.INFO: "•",
    State.UNKNOWN: "?",
    State.OK: "✔",
    State.NOT_APPLICABLE: " ",
}
_COLOURS = {State.CRITICAL: "red", State.WARNING: "yellow", State.UNKNOWN: "cyan", State.OK: "green"}


class Role(StrEnum):
    """What a finding is to the person who reads it."""

    ROOT = "root"  # a cause
    SYMPTOM = "symptom"  # what a cause explains
    OPPORTUNITY = "opportunity"  # nothing is wrong, but it could be faster
    INFO = "info"  # worth knowing
    NOT_SERVER = "not-server"  # the server is well; its clients, say, are not
    BLIND = "blind"  # without what is missing nothing else can be said


class Stage(StrEnum):
    """The order of reasoning: a cause of an earlier stage is told first."""

    BLIND = "blind"
    BROKEN = "broken"
    CLIENT = "client"
    HOST = "host"
    LIMIT = "limit"
    SLOW_PATH = "slow-path"
    OPPORTUNITY = "opportunity"

    @property
    def rank(self) -> int:
        return tuple(Stage).index(self)


class Confidence(StrEnum):
    """How sure a finding is, whatever its severity."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class SourceKind(StrEnum):
    """What a source is: `sources[].kind` in JSON."""

    SERVER = "server"  # a server's /metrics, live or recorded
    PROMETHEUS = "prometheus"  # a server, as a Prometheus reports it
    PAGE = "page"  # a saved scrape
    HOST = "host"  # the processes and the machine of a server
    GPU = "gpu"
    LOG = "log"
    COMMAND = "command"  # a command as it is written


SERVERS = frozenset({SourceKind.SERVER, SourceKind.PROMETHEUS, SourceKind.PAGE})
"""The kinds that hold a server's metrics."""

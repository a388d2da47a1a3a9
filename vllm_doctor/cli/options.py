"""Options that several commands have, and what is made of them."""

from __future__ import annotations

import argparse

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.version import __version__
from vllm_doctor.text import durations

TYPE_CHECKING = False  # typing's own costs time, and --help needs no more than argparse
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from vllm_doctor.model.reading import Value
    from vllm_doctor.rules.catalogue import Catalogue
    from vllm_doctor.session.applying import Given
    from vllm_doctor.session.attachment import Attachment
    from vllm_doctor.sources.bench.measured import Measured
    from vllm_doctor.sources.server.access import Access

FORMATS = ("text", "json", "markdown", "html", "nagios", "checkmk", "openmetrics", "patch")
QUIET = frozenset({"checkmk", "openmetrics"})
"""Formats that show only what is known, unless --all asks for the rest."""
EXPLAINED = ("text", "json", "markdown", "html")
"""Formats that have a place for what was suspected and dropped (--explain)."""
WINDOW = 3.0
"""Seconds between the first and the last scrape, unless others are asked for."""
PROFILED = 10.0
"""The same where processes are sampled (--profile): a share of their time needs samples."""
NOT_ASKED: dict[str, object] = {
    **{"state": None, "measured": None, "profile": False, "show_text": False, "explain": False, "strict": False},
    **{"kv_events": [], "since": None, "until": None, "last": None, "threads": None, "role": [], "namespace": None},
    **{"header": [], "token_file": None, "token_for": [], "ca_file": None, "insecure": False},
}
"""The options of an examination that its commands without them leave as they are."""
SLOS = ("ttft", "itl")
GOALS = ("throughput", "latency")
GLANCE = 1.0
"""The same in the first run of a hook, which keeps what it saw (--state)."""
ASKED = 600.0
"""Seconds: the window that a Prometheus is asked of, unless another is asked for."""
ONE_DAY = 86400.0


class Parser(argparse.ArgumentParser):
    """The parser of one command. `takes`: its usage without the command's name; `examples`: commands, and what for."""

    def __init__(
        self, prog: str, description: str, takes: str = "[options]", examples: Sequence[tuple[str, str]] = ()
    ) -> None:
        form = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=prog, allow_abbrev=False, formatter_class=form, usage=f"{prog} {takes}")
        self.about, self.examples = description, examples
        self.configured: list[str] = []
        """The options whose defaults a configuration file may set."""
        self.set_defaults(given=frozenset())
        self._titled: dict[str, Callable[..., argparse.Action]] = {}

    def group(self, title: str) -> Callable[..., argparse.Action]:
        """`add_argument` of a group of options in the help."""
        if title not in self._titled:
            self._titled[title] = self.add_argument_group(title).add_argument
        return self._titled[title]

    @property
    def spellings(self) -> list[str]:
        """Its options as they are written."""
        return [*self._option_string_actions]

    def format_help(self) -> str:
        import textwrap  # imported here: only help needs it

        lines = [textwrap.fill(self.about, 79)]
        if self.examples:
            lines += ["", "examples:"]
            for command, purpose in self.examples:
                lines += [f"  {command}", f"      {purpose}"]
        self.description = "\n".join(lines)
        return super().format_help()

    def settled(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The options, with what a configuration file sets; a file may stand behind an option. Raises UsageError."""
        options, strangers = self.parse_known_intermixed_args(arguments)
        if strangers:
            raise UsageError(self._unknown(strangers))
        return self._completed(options)

    def settled_known(self, arguments: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
        """The same, and the options of vLLM's that stand among them."""
        options, given = self.parse_known_args(arguments)
        return self._completed(options), given

    def slip(self, given: Sequence[str], is_another: Callable[[str], bool]) -> str:
        """What is wrong with options that are not its own, in a sentence: the first that is not `is_another`'s, either,
        and is written much like one of its own. "" for none."""
        from vllm_doctor.text import near  # imported here: most have none

        for word in given:
            option = word.partition("=")[0]
            if option.startswith("--") and not is_another(option) and (own := near.name(option, self.spellings)):
                return f"no option {option}; did you mean {own!r}? ({self.prog} --help)"
        return ""

    def error(self, message: str) -> NoReturn:
        """argparse would exit with 2, which means critical here."""
        told = message.removeprefix("argument ").replace("expected one argument", "needs a value")
        missing = told.removeprefix("the following arguments are required: ")
        if missing != told:
            told = f"{missing} missing: {self.format_usage().removeprefix('usage: ').strip()}"
        raise UsageError(f"{told} ({self.prog} --help)")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """argparse's own names no choice that may be meant."""
        if action.choices is None or value in action.choices:
            return
        from vllm_doctor.text import near

        names = [str(choice) for choice in action.choices]
        told = near.asked(str(value), names, f": one of {', '.join(names)}")
        raise argparse.ArgumentError(action, f"no {str(value)[:40]!r}{told}")

    def _unknown(self, strangers: Sequence[str]) -> str:
        """What is wrong with words that are not this command's. Only the option is named: its value may be secret."""
        option = next((word for word in strangers if word.startswith("-") and word != "-"), None)
        if option is None:
            return f"{strangers[0]!r} is one word too many: {self.format_usage().strip()}"
        option = option.partition("=")[0]
        from vllm_doctor.cli import commands
        from vllm_doctor.text import near

        theirs = ", ".join(map(repr, commands.having(option)[:3]))
        told = f": an option of {theirs}" if theirs else near.asked(option, self.spellings)
        return f"no option {option}{told} ({self.prog} --help)"

    def _completed(self, options: argparse.Namespace) -> argparse.Namespace:
        """With `given`, the options that the command line has itself, as it writes them; then with those that a
        configuration file sets."""
        actions = [action for action in self._actions if action.option_strings]
        options.given = frozenset(
            action.option_strings[-1]
            for action in actions
            if getattr(options, action.dest, action.default) != action.default
        )
        if self.configured and not options.no_config:
            from vllm_doctor.cli import config

            config.fill(options, self.configured)
        return options


def value_of(action: argparse.Action) -> str:
    """What an option takes, or what an argument is, as help writes it."""
    if action.metavar is None and action.choices is not None:
        return "|".join(map(str, action.choices))
    return str(action.metavar or action.dest.upper())


def add_examining(parser: Parser) -> None:
    """All options of an examination."""
    add_output(parser, FORMATS)
    add = parser.add_argument
    add("--version", action="version", version=f"vllm-doctor {__version__}")
    add_time(parser)
    add = parser.group("time")
    add("--state", metavar="FILE", help="keep the last scrape there: a hook then answers at once, over the time since")
    add_log_range(parser)
    add_sourcing(parser)
    add = parser.group("more evidence")
    add(
        "--measured",
        type=_measured,
        metavar="FIGURE",
        help="the speed that you saw: 17tok/s (of a request), 58ms (per output token), 1200tok/s@64 (of 64 requests"
        " together), tpot=58ms,concurrency=16,input=1024,output=128",
    )
    add(
        "--kv-events",
        action="append",
        default=[],
        metavar="ENDPOINT",
        help="where the server publishes its KV cache's events (--kv-events-config): tcp://host:5557, or with its"
        " replay_endpoint tcp://host:5557,tcp://host:5558; shows where prompts part that should begin alike",
    )
    add("--show-text", action="store_true", help="of prompts: also what stands where they part, not positions alone")
    add(
        "--profile",
        action="store_true",
        help="sample the processes of servers of this host, too (py-spy), over a window of 10 seconds; in the"
        " terminal each minute",
    )
    add_judging(parser)
    add_choosing(parser)


def add_output(parser: Parser, formats: Sequence[str]) -> None:
    """How the report is written."""
    add = parser.group("output")
    add("--text", action="store_true", help="text output (the default where the output is no terminal)")
    add("--json", action="store_true", help="JSON output, version 1 (--json=v1 pins it)")
    add("--format", choices=formats, help="output format")
    if QUIET & set(formats):
        add("--all", action="store_true", help="of checkmk and openmetrics: also what passed and what was skipped")
    add("-o", dest="output", metavar="FILE", help="write to FILE, whole or not at all (mode by umask; a .prom: 0644)")
    add_quiet(parser)


def add_quiet(parser: Parser) -> None:
    """Whether it is shown at a terminal how far a long look has come."""
    parser.add_argument("--quiet", action="store_true", help="no progress at a terminal (on standard error)")


def add_time(parser: Parser, default: str = "3; --state 1, terminal 30") -> None:
    """How long a server is watched."""
    add = parser.group("time")
    add(
        "--window",
        type=seconds,
        metavar="SECONDS",
        help=f"time between first and last scrape ({default})",
    )
    add("--timeout", type=seconds, metavar="SECONDS", help="for the whole run (8 + window)")


def add_log_range(parser: Parser) -> None:
    """Which part of a log is read."""
    add = parser.group("of a log")
    add("--since", metavar="TIME", help="of a log: from here on (13:30, 2025-11-20T13:30, or 2h before its end)")
    add("--until", metavar="TIME", help="of a log: up to here")
    add("--last", metavar="TIME", help="of a log: only its end (2h)")
    add("--threads", type=int, choices=(1, 2), help="of a log: read by so many (2 where a processor is idle)")


def add_judging(parser: Parser) -> None:
    """How a report is judged, and what of it is shown."""
    add = parser.group("verdict")
    add("--explain", action="store_true", help="what was suspected, kept and dropped, and by which number")
    add("--strict", action="store_true", help="any unknown rule makes the verdict unknown")
    add_failing(parser)


def add_failing(parser: Parser) -> None:
    """Which verdicts are failures."""
    add = parser.group("verdict")
    add(
        "--fail-on",
        choices=("warning", "critical", "never"),
        default="warning",
        help="minimum severity for a non-zero exit",
    )


def add_choosing(parser: Parser) -> None:
    """Which rules judge, and by which goal."""
    add = parser.group("goal and rules")
    add("--goal", choices=GOALS, help="what matters to you (throughput)")
    add("--slo", action="append", default=[], metavar="NAME=TIME", help="target: ttft=2s, itl=50ms")
    add("--rules", action="append", default=[], metavar="DIR", help="more rules")
    add("--rule", action="append", default=[], metavar="ID", help="only this rule")
    add("--skip", action="append", default=[], metavar="ID", help="not this rule")
    add_config(parser, "goal", "slo", "rules", "skip")


def add_config(parser: Parser, *names: str) -> None:
    """Whether a configuration file sets the defaults of these options."""
    if not parser.configured:
        parser.add_argument("--no-config", action="store_true", help="without the configuration file")
    parser.configured += names


def add_sourcing(parser: Parser, has_roles: bool = True) -> None:
    """What is known of a server beside the server itself, and how it is asked. `has_roles`: several sources may be one
    path of a request."""
    add_known(parser)
    add = parser.group("more evidence")
    add("-n", "--namespace", metavar="NAME", help="of Kubernetes: deploy/NAME, pod/NAME and their like are there")
    if has_roles:
        add(
            "--role",
            type=_role,
            action="append",
            default=[],
            metavar="ROLE=URL",
            help="what a source is on the path of a request: gateway, router, prefill, decode, server; they are one"
            " examination",
        )
    add_accessing(parser)


def add_known(parser: Parser) -> None:
    """What is known of a server beside the server itself."""
    add = parser.group("more evidence")
    add("--command", metavar="TEXT|FILE", help="how the server was, or will be, started, where no file shows it")
    add(
        "--nvidia-smi",
        metavar="FILE",
        help="GPUs from a file, not from the driver: what nvidia-smi printed (-q -x has the most), gpustat, rocm-smi,"
        " amd-smi, xpu-smi or npu-smi",
    )
    add(
        "--gpu",
        metavar="NAME",
        help="the GPUs, where none can be found: H100, 8xL40S, 4090, 'A100 40GB', p5.48xlarge; "
        "of others their figures: '2x foo 900GB/s 100TFLOPS 24GB', 'cpu 40GB/s 2TFLOPS'",
    )


def add_accessing(parser: Parser) -> None:
    """How a server is asked."""
    add = parser.group("access to servers")
    add("--header", action="append", default=[], metavar="'K: V'", help="HTTP header for the servers named here")
    add("--token-file", type=_token, metavar="FILE", help="token for the servers named here (Authorization: Bearer)")
    add(
        "--token-for",
        type=_token_for,
        action="append",
        default=[],
        metavar="URL=FILE",
        help="token for the server at URL, named or found, not that of --token-file",
    )
    add("--ca-file", metavar="FILE", help="certificates to trust (PEM)")
    add("--insecure", action="store_true", help="do not check the server's certificate")


def _measured(figure: str) -> Measured:
    from vllm_doctor.sources.bench import measured  # late: --help needs it not

    try:
        return measured.parse(figure)
    except ValueError as error:
        raise UsageError(f"--measured: {error}") from None


def _role(text: str) -> tuple[str, str]:
    """What a source is on the path of a request, and the word that names it."""
    from vllm_doctor.model.kinds import Hop

    role, _, word = text.partition("=")
    if role not in list(Hop) or not word:
        raise UsageError(f"--role {text}: write ROLE=URL, with one of {', '.join(Hop)}")
    return role, word


def _token(path: str) -> str:
    """Read with the command line, once: a pipe cannot be read again."""
    from vllm_doctor.sources.server import token_file  # these two late: --help and the lists need neither

    return token_file.read("--token-file", path)


def _token_for(text: str) -> tuple[str, str]:
    """The base of a URL, and its token."""
    from vllm_doctor.sources.server import fetch, token_file

    url, _, path = text.partition("=")
    if not path:
        raise UsageError(f"--token-for {fetch.shown(url)}: write http://host:8000=FILE")
    return fetch.base_of(url.removeprefix("prom+")), token_file.read(f"--token-for {fetch.shown(url)}", path)


def seconds(text: str) -> float:
    """A duration of at most a day, in seconds; raises argparse's error for a value."""
    try:
        value = durations.parse(text)
        if value <= ONE_DAY:
            return value
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is no duration of at most a day: write 3, 3s, 500ms, 2m or 1h")


def words_of(options: argparse.Namespace) -> list[str]:
    """The words that name sources: those that stand alone, and those that are given a role."""
    alone = options.source
    if options.namespace is not None:
        from vllm_doctor.sources.kubernetes import target  # late: few name a workload so

        alone = target.within(options.namespace, alone)
    return list(dict.fromkeys((*alone, *(word for _, word in options.role))))


def form_of(options: argparse.Namespace) -> str:
    """The format of the output."""
    named = filter(None, [getattr(options, "format", None)])
    asked = list(dict.fromkeys((*["text"] * options.text, *["json"] * options.json, *named)))
    if len(asked) > 1:
        raise UsageError(f"two formats are asked for, {' and '.join(asked)}: give one of them")
    form: str = asked[0] if asked else "text"
    if "--explain" in options.given and form not in EXPLAINED:
        raise UsageError(f"--explain is of {', '.join(EXPLAINED[:-1])} and {EXPLAINED[-1]}: {form} has no place for it")
    if getattr(options, "all", False) and form not in QUIET:
        raise UsageError(f"--all is of --format {' and '.join(sorted(QUIET))}: {form} shows what was skipped anyway")
    return form


def since_of(options: argparse.Namespace) -> str | None:
    """Where to begin in a log; None: at its beginning."""
    if options.last and options.since:
        raise UsageError("--last and --since both say where to begin: give one of them")
    since: str | None = options.last or options.since
    return since


def wishes_of(options: argparse.Namespace) -> dict[str, Value]:
    """The goal and the targets, as signals; only those that were given."""
    wishes: dict[str, Value] = {"goal": options.goal} if options.goal else {}
    for text in options.slo:
        name, _, target = text.partition("=")
        try:
            if name not in SLOS or not target[-1:].isalpha():  # 2 of what?
                raise ValueError
            wishes[f"slo_{name}"] = seconds(target)
        except (ValueError, argparse.ArgumentTypeError):
            raise UsageError(f"--slo {text}: write ttft=2s or itl=50ms") from None
    return wishes


def access_of(options: argparse.Namespace) -> Access:
    """How servers are asked."""
    from pathlib import Path  # imported here: --help and the lists need neither

    from vllm_doctor.sources.server.access import Access

    headers: dict[str, str] = {}
    for header in options.header:
        name, colon, value = header.partition(":")
        if not colon or not name.strip() or not (name + value).isascii() or not (name + value).isprintable():
            raise UsageError("--header: write it as 'Name: value'")
        headers[name.strip().lower()] = value.strip()
    if options.token_file:
        headers["authorization"] = f"Bearer {options.token_file}"
    ca_file = Path(options.ca_file) if options.ca_file else None
    return Access(headers, ca_file, options.insecure, dict(options.token_for))


def given_of(options: argparse.Namespace, is_more: bool = False) -> Given:
    """The options that were written, which wait for a source that they say something of."""
    from vllm_doctor.session.applying import Given

    return Given(options.given, is_more)


def attachment_of(
    options: argparse.Namespace, access: Access, signals: Catalogue, seconds: float, deadline: float
) -> Attachment:
    """How to look at sources, as the options of `add_sourcing` and `add_choosing` say it; the rest as of Attachment."""
    from functools import cache
    from pathlib import Path

    from vllm_doctor.cli import chosen_rules
    from vllm_doctor.session.attachment import Attachment

    return Attachment(
        signals.metrics,
        access,
        seconds,
        deadline,
        Path(options.nvidia_smi) if options.nvidia_smi else None,
        command=options.command,
        gpu=options.gpu,
        rules=cache(lambda: chosen_rules.version(options)),
        folders=chosen_rules.folders(options),
        roles={word: role for role, word in options.role},
        given=given_of(options),
    )


def examining_attachment_of(
    options: argparse.Namespace, access: Access, signals: Catalogue, seconds: float, deadline: float
) -> Attachment:
    """The same, as all options of an examination say it."""
    from dataclasses import replace

    how = None
    if options.profile:
        from vllm_doctor.sources.profile.profiler import MOST_SECONDS, How

        how = How(min(max(PROFILED if options.window is None else seconds, 1.0), MOST_SECONDS))
    return replace(
        attachment_of(options, access, signals, seconds, deadline),
        since=since_of(options),
        until=options.until,
        threads=options.threads,
        signals=signals,
        measured=options.measured,
        kv_events=tuple(options.kv_events),
        show_text=options.show_text,
        asked=ASKED if options.window is None else options.window,
        profile=how,
        recorded=getattr(options, "recorded", None),  # by `demo` alone
    )

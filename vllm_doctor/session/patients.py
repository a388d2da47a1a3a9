"""What the observations of one server add up to: its facts, by how far each source is believed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from vllm_doctor.model import restarts
from vllm_doctor.model.facts import COMMAND, ENGINE_METRIC, ENVIRONMENT, FORM, LOG, SAID
from vllm_doctor.model.kinds import SERVERS, SourceKind, Trust
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.reading import Known, Reading
from vllm_doctor.model.report import Problem
from vllm_doctor.model.snapshot import Snapshot
from vllm_doctor.model.window import Window
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.session import named_model
from vllm_doctor.vllm import adapters, defaults, nested_flags

if TYPE_CHECKING:
    from vllm_doctor.model.run import Run

_WINDOW = "flags_window"
_PROCESS = "process_id"
_OF_NO_RUN = frozenset(
    {SourceKind.COMMAND, SourceKind.GPU, SourceKind.COLLECT_ENV, SourceKind.GPU_NAME, SourceKind.AUTOSCALER}
)
"""What can be known of a server that does not run yet."""
_MEASURED = tuple(
    f"bench_{what}"
    for what in (
        "output_tokens_per_second", "total_tokens_per_second", "requests_per_second", "duration", "ttft", "tpot", "itl",
        "e2e",
    )
)  # fmt: skip
"""Facts of a benchmark of which each result has one; what it was told to do is none."""
_MACHINES = (SourceKind.COLLECT_ENV, SourceKind.GPU_NAME)
_TELLS_GPU = {SourceKind.GPU: "the driver reports", SourceKind.COLLECT_ENV: "collect-env reports"}


@dataclass(frozen=True)
class Examined:
    """One patient: all observations of one server, at least one."""

    observations: tuple[Observation, ...]

    @property
    def name(self) -> str:
        first = self.observations[0]
        return first.patient or first.target

    @property
    def can_be_judged(self) -> bool:
        """Whether anything was measured of it, or is known beyond what named it.

        What /version said of a server whose metrics cannot be used is nothing to judge, nor is a machine on which
        nothing was seen to run; what a server's host said is.
        """
        return any(
            o.window.times or o.evaluated or ((o.facts or o.runs) and o.kind not in (*SERVERS, *_MACHINES))
            for o in self.observations
        )

    @property
    def is_cut(self) -> bool:
        """Whether a look at its server broke off after its first scrape: what has no rates shows symptoms at most."""
        return any(o.kind in SERVERS and o.error is not None and len(o.window.times) == 1 for o in self.observations)

    def without_scrapes(self) -> Examined:
        """What is known of it beside its scrapes."""
        return Examined(tuple(replace(o, window=Window()) for o in self.observations))

    @property
    def models(self) -> tuple[str, ...]:
        """The names under which it serves its model, where a source says so."""
        return next((o.models for o in self.observations if o.models), ())

    @property
    def started(self) -> Observation | None:
        """Who has its command line, the most believed of them."""
        return next((o for o in believed(self.observations) if o.command), None)

    def facts(self) -> dict[str, Reading]:
        """What is known of it. The first source wins; where the server's own command was read, a written one says
        nothing of its flags."""
        facts: dict[str, Reading] = {}
        for observation in believed(self.observations):
            said = observation.facts
            is_given = observation.kind.trust >= Trust.WRITTEN
            facts = _completed(facts, said) if is_given else {**said, **facts}
        facts = _judged_by_version(facts, self.observations)
        if is_written_alone(self.observations) and "flags_judged_as" in facts:
            facts["flags_checked_by"] = facts["flags_judged_as"]
        return facts

    def snapshot(
        self,
        catalogue: Catalogue,
        wished: Mapping[str, Reading],
        is_tagged: bool,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Snapshot:
        """Its signals. `wished`: facts of the user's; `is_tagged`: its name is part of each subject. `is_over`: whether
        there is no time for another engine."""
        scraped = [o.window for o in self.observations if o.window.times]
        window = scraped[0] if scraped else Window()
        evaluated = None if scraped else next((o.evaluated for o in self.observations if o.evaluated), None)
        seconds = window.seconds if evaluated is None else evaluated.seconds
        watched: dict[str, Reading] = {restarts.WINDOW: Known(seconds, origin="")} if seconds else {}
        return catalogue.snapshot(
            window,
            {**self._with_model(_with_defaults(self.facts()), window), **wished, **watched},
            (("server", self.name),) if is_tagged else (),
            evaluated,
            is_over,
        )

    def _with_model(self, facts: Mapping[str, Reading], window: Window) -> dict[str, Reading]:
        """The facts, with what the model's name tells where its files do not."""
        started = [name for o in believed(self.observations) if o.kind not in SERVERS for name in o.models]
        served = [name for o in self.observations if o.kind in SERVERS for name in o.models]
        engines = [
            *window.latest(ENGINE_METRIC),
            *(e for o in self.observations if o.evaluated for e in o.evaluated.engines),
        ]
        labels = {labels.get("model_name", "") for labels in map(dict, engines)}
        return named_model.completed(facts, started, [*served, *(labels if len(labels) == 1 else ())])


def patients(observations: Sequence[Observation]) -> list[Examined]:
    """The observations, those of one patient together."""
    found: dict[str, list[Observation]] = {}
    for observation in observations:
        found.setdefault(observation.patient or observation.target, []).append(observation)
    return [Examined(tuple(seen)) for seen in found.values()]


def believed(observations: Sequence[Observation]) -> list[Observation]:
    """The observations in the order in which they are believed."""
    return sorted(observations, key=lambda o: o.kind.trust)


def is_written_alone(observations: Sequence[Observation]) -> bool:
    """Whether a command, and the GPUs for it, are all that there is: nothing runs yet."""
    return is_unmeasured(observations) and any(o.kind is SourceKind.COMMAND for o in observations)


def is_unmeasured(observations: Sequence[Observation]) -> bool:
    """Whether nothing that could be read is of a server that runs or ran."""
    kinds = {o.kind for o in observations if o.error is None and (o.runs or o.kind is not SourceKind.LOG)}
    return bool(kinds) and kinds <= _OF_NO_RUN


def is_benchmark_alone(observations: Sequence[Observation]) -> bool:
    """Whether a benchmark is all that was done: no server was looked at."""
    return {SourceKind.BENCH} <= {observation.kind for observation in observations} <= {SourceKind.BENCH, *_OF_NO_RUN}


def has_figure(observations: Sequence[Observation]) -> bool:
    """Whether a benchmark among them tells something that it measured."""
    return any(
        isinstance(o.facts.get(name), Known) for o in observations if o.kind is SourceKind.BENCH for name in _MEASURED
    )


def is_said(observations: Sequence[Observation]) -> bool:
    """Whether all that was measured is a speed that a person named."""
    return all(o.bench is None or o.bench.tool == SAID for o in observations)


def machine_alone(observations: Sequence[Observation]) -> Problem | None:
    """What to say where a machine is all that is known."""
    seen = next((o for o in observations if o.kind is SourceKind.COLLECT_ENV), None)
    if seen is None:
        return None
    told = {name: fact.value for name, fact in seen.facts.items() if isinstance(fact, Known)}
    version, gpu, device = (told.get(name) for name in ("vllm_version", "gpu_name", "device_written"))
    count = f"{count:.0f} × " if isinstance(count := told.get("gpus_on_host"), float) else ""
    parts = (version and f"vLLM {version}", f"{count}{gpu}" if gpu else device)
    machine = ", ".join(str(part) for part in parts if part) or "neither vLLM's version nor a GPU"
    return Problem(
        "no-server",
        f"{seen.target} is the output of collect-env ({machine}) and describes no server: add its log, its URL,"
        " or --command with how it was started",
    )


def without_named_where_seen(observations: Sequence[Observation]) -> list[Observation]:
    """The observations; of a GPU that was named (--gpu) only a note, where its machine tells which one it is."""
    seen = {
        o.patient or o.target: (_TELLS_GPU[o.kind], name.value)
        for o in reversed(believed(observations))
        if o.kind in _TELLS_GPU and isinstance(name := o.facts.get("gpu_name"), Known)
    }

    def checked(o: Observation) -> Observation:
        told = seen.get(o.patient or o.target) if o.kind is SourceKind.GPU_NAME else None
        if told is None:
            return o
        who, name = told
        return replace(o, facts={}, notes=(*o.notes, f"--gpu is not used: {who} which GPU it is ({name})"))

    return [checked(o) for o in observations]


def with_what_else_is_known(runs: Sequence[Run], observations: Sequence[Observation]) -> list[Run]:
    """The runs of a log, with what the driver, or a name, tells of their GPUs, a written command of their flags, and a
    benchmark of itself, where the log does not. The load is the log's own, whose statistics tell it over time."""
    from vllm_doctor.model import drift  # late: of a log

    beside = (*_OF_NO_RUN, SourceKind.BENCH, SourceKind.KV_EVENTS, SourceKind.KUBERNETES, SourceKind.TRACE)
    added = [without_load(o.facts) for o in believed(observations) if o.kind in beside]
    models = [name for o in believed(observations) if o.kind in (*_OF_NO_RUN, SourceKind.BENCH) for name in o.models]
    found = []
    for run in runs:
        facts: Mapping[str, Reading] = run.facts
        for more in added:
            facts = _completed(facts, more) | _of_both_windows(facts, more)
        facts = _judged_by_version(facts, observations)
        if (share := run.largest_request) is not None:
            facts = {**facts, "largest_request": Known(share, origin=LOG)}
        if (best := run.fastest_decode) is not None:
            decode = dict(zip(("decode_seconds_best", "decode_batch_best"), best, strict=True))
            facts = {**facts, **{name: Known(value, origin=LOG) for name, value in decode.items()}}
        facts = {**facts, **(run.decode_drift or drift.UNTOLD if run.rounds else {})}
        found.append(replace(run, facts=named_model.completed(_with_defaults(facts), [run.model, *models], ())))
    alive = next((o.facts[_PROCESS] for o in observations if o.processes and _PROCESS in o.facts), None)
    if found and alive is not None:  # the last of them has not ended
        found[-1] = replace(found[-1], facts={**found[-1].facts, _PROCESS: alive})
    return found


def _judged_by_version(facts: Mapping[str, Reading], observations: Sequence[Observation]) -> dict[str, Reading]:
    """The facts; where another source than a written command tells the version, its flags are judged by that."""
    written = next((o.facts for o in observations if "flags_written" in o.facts), {})
    version = facts.get("vllm_version")
    if not written or not isinstance(version, Known) or written.get("vllm_version") == version:
        return dict(facts)
    from vllm_doctor.launch import dated  # late: where a command is given

    return _without_window(facts) | dated.by_version(written, str(version.value))


def _of_both_windows(logged: Mapping[str, Reading], written: Mapping[str, Reading]) -> dict[str, Reading]:
    """By which release a written command is judged that a log dates more closely than its flags do."""
    of_log, of_command = logged.get(_WINDOW), written.get(_WINDOW)
    if not isinstance(of_log, Known) or not isinstance(of_command, Known) or "vllm_version" in logged:
        return {}
    both = [name for name in str(of_command.value).split() if name in str(of_log.value).split()]
    if not both:
        return {}
    return {_WINDOW: replace(of_log, value=" ".join(both)), "flags_judged_as": replace(of_log, value=both[-1])}


def without_load(facts: Mapping[str, Reading]) -> dict[str, Reading]:
    """The facts without those of the load whose speed is expected (load_*)."""
    return {name: fact for name, fact in facts.items() if not name.startswith("load_")}


def _without_window(facts: Mapping[str, Reading]) -> dict[str, Reading]:
    """The facts without what was said of a command's version as long as nothing told it."""
    return {name: fact for name, fact in facts.items() if not name.startswith(("flags_window", "flags_contradiction"))}


def _with_defaults(facts: Mapping[str, Reading]) -> dict[str, Reading]:
    """The facts with what the server takes where it is not told, as far as they do not say so themselves."""
    facts = {**facts, **nested_flags.of_facts(facts), **adapters.of_facts(facts)}
    if "gpu_written" in facts:
        from vllm_doctor.vllm import gpu_names  # late: of a log, or of a manifest

        facts |= gpu_names.completed(facts)
    of_device = defaults.of_device(facts) if FORM in facts else {}
    known = {name: fact for name, fact in facts.items() if isinstance(fact, Known) or name not in of_device}
    return defaults.of_version(facts) | defaults.of_flags(facts) | of_device | known


def _completed(facts: Mapping[str, Reading], written: Mapping[str, Reading]) -> dict[str, Reading]:
    """The facts with those of a written command, its flags and its environment each as a whole or not at all."""
    known = {prefix for prefix, whole in (("--", COMMAND), ("$", ENVIRONMENT)) if isinstance(facts.get(whole), Known)}
    added = {
        name: fact
        for name, fact in written.items()
        if not name.startswith(tuple(known)) and not isinstance(facts.get(name), Known)
    }
    return {**facts, **added}

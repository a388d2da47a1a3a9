"""The signal catalogue: where a metric, a label or a fact becomes a signal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

from vllm_doctor.model.facts import ENGINE_METRIC
from vllm_doctor.model.kinds import Hop
from vllm_doctor.model.reading import Reading, Subject
from vllm_doctor.model.snapshot import Evaluated, Snapshot
from vllm_doctor.model.window import Window
from vllm_doctor.rules import diagnosis_file, evaluation
from vllm_doctor.rules.diagnosis_file import Diagnosis
from vllm_doctor.rules.signal import Signal, metrics
from vllm_doctor.rules.table import Problems


class Catalogue:
    """All signals, which metrics they are made of, and what else is made of them.

    `path`: the folder that it was read from.
    """

    def __init__(self, signals: Mapping[str, Signal], diagnosis: Diagnosis, path: Path) -> None:
        self.signals = signals
        self.symptoms = diagnosis.symptoms
        self.refusals = diagnosis.refusals
        self.negligible = diagnosis.negligible
        self.outliers = diagnosis.outliers
        self.speed = diagnosis.speed
        self.gates = diagnosis.gates
        self.path_of_requests = diagnosis.path
        self.path = path
        self.metrics = frozenset(name for signal in signals.values() for name in metrics(signal)) | {ENGINE_METRIC}
        uses = {name: signal.formula.names if signal.formula else () for name, signal in signals.items()}
        self.in_order = tuple(signals[name] for name in TopologicalSorter(uses).static_order())
        """The signals, each below what it is computed from."""
        self.of_path = tuple(_of_path(signals))
        """What the path of a request takes from its sources: (role, signal, name of the fact)."""
        self.of_path_only = frozenset(name for _, name, _ in self.of_path)
        """Signals of a whole source: asked of no engine."""

    def behind(self, names: Iterable[str]) -> frozenset[str]:
        """These signals and all that they are computed from."""
        found: set[str] = set()
        wanted = list(names)
        while wanted:
            name = wanted.pop()
            if name not in found:
                found.add(name)
                formula = self.signals[name].formula
                wanted += formula.names if formula is not None else ()
        return frozenset(found)

    def metrics_behind(self, names: Iterable[str]) -> frozenset[str]:
        """The metrics that these signals are made of."""
        return frozenset(metric for name in self.behind(names) for metric in metrics(self.signals[name]))

    def narrowed(self, names: Iterable[str]) -> Catalogue:
        """The catalogue with only these signals, what they are computed from, and what the symptoms name.

        Without refusals: no command is corrected by it.
        """
        of_symptoms = [name for symptom in self.symptoms for name in symptom.when.names]
        of_size = (
            *(self.negligible.when.names if self.negligible else ()),
            *(self.speed.signals if self.speed else ()),
        )
        kept = self.behind([*names, *of_symptoms, *of_size])
        signals = {n: s for n, s in self.signals.items() if n in kept}
        return Catalogue(signals, Diagnosis(self.symptoms, negligible=self.negligible, speed=self.speed), self.path)

    def snapshot(
        self,
        window: Window,
        facts: Mapping[str, Reading],
        tag: Subject = (),
        evaluated: Evaluated | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Snapshot:
        """What the scrapes of one server and the facts about it say.

        `tag` tells servers apart where several are examined together. `evaluated`: signals that need no scrapes.
        `is_over`: whether there is no time for another engine.
        """
        return evaluation.snapshot(self.in_order, window, facts, tag, evaluated, is_over)


LARGEST = ".largest"
"""Behind a fact of the path: the share that the largest of its sources has."""


def _of_path(signals: Mapping[str, Signal]) -> Iterable[tuple[str, str, str]]:
    for signal in signals.values():
        role, dot, name = signal.definition.partition(".")
        if signal.way == "fact" and dot and role in frozenset(Hop):
            name = name.removesuffix(LARGEST)
            if name in signals:
                yield role, name, signal.definition


def load(shipped: Path, *folders: Path, problems: Problems | None = None) -> Catalogue:
    """The catalogue of the shipped folder, its diagnosis.yaml included, and the signals of others. Raises DocumentError
    with the line; with `problems`, mistakes are noted there, and what is wrong stands for itself, never known."""
    from vllm_doctor.rules import signals_file  # late: most starts have the signals from an earlier one (pickled.py)

    signals = signals_file.load(shipped, *folders, problems=problems)
    return Catalogue(signals, diagnosis_file.load(shipped / diagnosis_file.FILE, signals, problems), shipped)

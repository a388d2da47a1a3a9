"""How the signals of one server went in the hour before it was opened: one range query a signal."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from vllm_doctor.model.errors import SourceError
from vllm_doctor.prometheus import query
from vllm_doctor.prometheus.api import Api
from vllm_doctor.prometheus.query import Scope
from vllm_doctor.rules.catalogue import Catalogue

SECONDS, STEP = 3600.0, 60.0

Points = Mapping[float, float]


def look(
    api: Api,
    catalogue: Catalogue,
    names: Collection[str],
    summed: Collection[str],
    scope: Scope,
    at: float,
    deadline: float,
) -> dict[str, Points]:
    """By signal its values by POSIX seconds, over all engines: their sum, or the most.

    Only what PromQL defines; never raises: what is not answered in time has no history.
    """
    found: dict[str, Points] = {}
    for name in names:
        signal = catalogue.signals.get(name)
        if signal is None or signal.way != "promql":
            continue
        try:
            tracks = api.tracks(query.text(signal.definition, scope), at - SECONDS, at, STEP, deadline)
        except SourceError as error:
            if error.kind == "refused":
                continue
            return found
        points: dict[float, float] = {}
        for track in tracks:
            for when, value in track.points.items():
                before = points.get(when)
                points[when] = value if before is None else before + value if name in summed else max(before, value)
        if points:
            found[name] = points
    return found

from __future__ import annotations

import json
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.making import shipped_catalogue
from tests.serving import Answer, Request, Route, pages, serving, vllm
from tests.zstandard import zstd
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.model.observation import GpuSeen, Observation, ProcessSeen
from vllm_doctor.model.reading import Known, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Problem
from vllm_doctor.recording import archive, bundle
from vllm_doctor.recording.metrics import MetricsWriter
from vllm_doctor.session.capture import Recorder, packable
from vllm_doctor.session.source import Source
from vllm_doctor.sources.server.server import Server
from vllm_doctor.text.pseudonyms import Pseudonyms

PAGES = pages("preemption", 10)


def taken(watchers: Sequence[Source], seconds: float = 0.3, share: bool = False) -> dict[str, bytes]:
    return Recorder(watchers, seconds, "0123456789ab", {"goal": "throughput"}, share).take()


def of(url: str, opened: ExitStack) -> Source:
    server = opened.enter_context(closing(Server(url, shipped_catalogue().metrics)))
    nothing = Observation(SourceKind.SERVER, server.target)
    return Source(SourceKind.SERVER, server.target, server.target, lambda: nothing, server=server)


def taken_of(metrics: Route | Sequence[str], seconds: float = 0.2) -> dict[str, bytes]:
    with serving(vllm(metrics)) as server, ExitStack() as opened:
        return taken([of(server.url, opened)], seconds)


def recorded(metrics: Route | Sequence[str], seconds: float) -> bundle.Recording:
    with serving(vllm(metrics)) as server, ExitStack() as opened:
        return bundle.parsed("r", taken([of(server.url, opened)], seconds))


@dataclass
class Told:
    """A source that tells another number at each look."""

    every: float = 0.1
    looks: int = 0
    asked: list[float] = field(default_factory=list)

    def look(self, seconds: float) -> Observation:
        self.looks += 1
        self.asked.append(seconds)
        facts = {"cores": Known(2.0, origin="proc"), "cpu": Known(float(self.looks), origin="proc")}
        row = ProcessSeen("worker", 7, Known(1.0), Unknown(Reason.DENIED), 3)
        gpu = GpuSeen(0, "H100", {"clock": Known(1.9e9, origin="nvml")})
        return Observation(SourceKind.HOST, "pid 7", facts=facts, patient="p", notes=("a note",),
                           command=("vllm", "serve"),
                           processes=(("worker", 7),), process_rows=(row,), gpu_rows=(gpu,))  # fmt: skip


def host(make: Callable[[], Any] = Told) -> Source:
    return Source(SourceKind.HOST, "pid 7", "p", Told().look.__func__, follow=make)  # type: ignore[attr-defined]


# ---- a server -------------------------------------------------------------------------------------------------------


def test_the_answers_are_kept_as_they_came() -> None:
    found = recorded(PAGES, 1.0)
    assert [page.decode() for page in found.pages] == PAGES[: len(found.pages)]
    assert found.version == {"version": "0.32.0"}
    assert found.models["data"][0]["id"] == "tiny"
    assert found.sources[0].error is None


def test_one_that_stops_answering_is_kept_up_to_then() -> None:
    def metrics(request: Request) -> Answer:
        return Answer(PAGES[0].encode()) if request.number < 1 else Answer(b"", status=503)

    found = recorded(metrics, 2.0)
    assert len(found.times) == 1
    seen = found.sources[0].observation(frozenset())
    assert seen.error is not None
    assert seen.error.kind == "server-error"
    assert any(re.match(r"it did not answer \d time", note) for note in seen.notes)


def test_one_that_comes_back_is_well() -> None:
    def metrics(request: Request) -> Answer:
        return Answer(b"", status=503) if request.number == 0 else Answer(PAGES[0].encode())

    found = recorded(metrics, 2.0)
    assert (found.pages[0].decode(), found.sources[0].error) == (PAGES[0], None)
    assert found.sources[0].notes == ("it did not answer 1 time(s) while it was recorded",)


@pytest.mark.parametrize(
    ("metrics", "kind"),
    [(lambda request: Answer(b"", status=401), "denied"), (lambda request: Answer(b"up 1\n"), None)],
)
def test_where_nothing_was_seen_there_is_no_recording(metrics: Route, kind: str | None) -> None:
    routes = vllm(metrics) if kind else {"/metrics": metrics}
    with (
        serving(routes) as server,
        ExitStack() as opened,
        pytest.raises(SourceError, match="nothing to record") as raised,
    ):
        taken([of(server.url, opened)])
    assert raised.value.kind == (kind or "not-vllm")


# ---- what is beside it ----------------------------------------------------------------------------------------------


def test_what_is_beside_it_is_kept_with_its_origins() -> None:
    parts = taken([host()])
    assert json.loads(parts["1-host/facts.json"])["cores"] == {"value": 2.0, "from": "proc"}
    (found,) = bundle.parsed("r", parts).sources
    assert found.command == ("vllm", "serve")
    assert found.processes == (("worker", 7),)
    assert found.process_rows == (ProcessSeen("worker", 7, Known(1.0), Unknown(Reason.DENIED), 3),)
    assert found.gpu_rows == (GpuSeen(0, "H100", {"clock": Known(1.9e9)}),)
    assert found.notes == ("a note",)


def test_it_is_looked_at_over_the_whole_time() -> None:
    made: list[Told] = []

    def make() -> Told:
        made.append(Told())
        return made[-1]

    taken([host(make)], 0.3)
    assert made[0].looks == 2  # at the start and at the end
    assert min(made[0].asked) >= 0.3


def test_what_it_was_at_a_time() -> None:
    trend = [{"at": 10.0, "facts": {"cpu": {"value": 1.0}}}, {"at": 20.0, "facts": {"cpu": {"value": 2}}}]
    parts = taken([host()]) | {"1-host/course.jsonl": "".join(json.dumps(line) + "\n" for line in trend).encode()}
    (found,) = bundle.parsed("r", parts).sources

    def cpu(until: float | None) -> object:
        fact = found.observation(frozenset(), until).facts["cpu"]
        return fact.value if isinstance(fact, Known) else None

    end = cpu(None)
    assert [cpu(5.0), cpu(10.0), cpu(15.0), cpu(25.0)] == [end, 1.0, 1.0, 2.0]


def test_what_was_seen_of_one_that_goes_away_stays() -> None:
    class Gone(Told):
        def look(self, seconds: float) -> Observation:
            seen = super().look(seconds)
            gone = Problem("gone", "pid 7 has ended")
            return seen if self.looks == 1 else Observation(SourceKind.HOST, "pid 7", patient="p", error=gone)

    (found,) = bundle.parsed("r", taken([host(Gone)])).sources
    assert found.error == Problem("gone", "pid 7 has ended")
    assert found.facts["cores"] == Known(2.0)


def test_what_is_kept_cannot_write_on_a_terminal() -> None:
    hostile = 'vllm:x{a="\x1b[2J\u202e"} 1\r\n' + PAGES[0]
    text = zstd.decompress(taken_of([hostile])["1-server/metrics.prom.zst"]).decode()
    assert all(c.isprintable() or c in "\r\n\t" for c in text)
    assert 'vllm:x{a="\\u001b[2J\\u202e"} 1\r\n' in text


def test_one_that_fails_is_said() -> None:
    gone = Observation(SourceKind.GPU, "NVIDIA driver", error=Problem("denied", "no"), patient="p")
    watcher = Source(SourceKind.GPU, "NVIDIA driver", "p", lambda: gone)
    found = bundle.parsed("r", taken([host(), watcher]))
    assert found.sources[1].error == Problem("denied", "no")


def test_one_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm_doctor.session import capture

    monkeypatch.setattr(capture, "_HANDOVER", 0.2)
    never = threading.Event()

    def hang() -> Observation:
        never.wait(30)
        raise AssertionError

    found = bundle.parsed("r", taken([host(), Source(SourceKind.GPU, "NVIDIA driver", "p", hang)], 0.1))
    never.set()
    assert found.sources[1].error is not None
    assert found.sources[1].error.kind == "timeout"


def test_our_own_fault_is_not_hidden() -> None:
    def fail() -> Observation:
        raise ZeroDivisionError("x")

    with pytest.raises(SourceError, match="internal error: ZeroDivisionError: x") as caught:
        taken([replace(host(), follow=None, look=fail)])
    assert caught.value.kind == "internal"


# ---- what is written ------------------------------------------------------------------------------------------------


def kept(share: bool = False) -> dict[str, bytes]:
    about = {
        "format": bundle.FORMAT,
        "sources": [{"target": "http://me:pw@gpu-9.internal:8000", "folder": "1-server"}],
    }
    answers = MetricsWriter()
    answers.add(0.0, 'x{m="/data/models/a",h="gpu-9.internal"} 1\n')
    answers.add(1.0, 'x{m="/data/models/a",h="gpu-9.internal"} 2\n')
    parts = {
        "1-server/metrics.prom.zst": answers.ended(),
        "2-host/facts.json": {
            "--api-key": {"value": "abcd"},
            "$HF_TOKEN": {"value": "hf_abcdefghijklmn"},
            "n": {"value": 1},
        },
    }
    return packable(about, parts, Counter(), Pseudonyms() if share else None)


@pytest.mark.parametrize("share", [False, True])
def test_the_same_input_gives_the_same_bytes(share: bool) -> None:
    assert archive.packed(kept(share)) == archive.packed(kept(share))


def test_all_that_is_written_is_masked() -> None:
    found = kept()
    about = json.loads(found["recording.json"])
    assert about["sources"][0]["target"] == "http://[masked]@gpu-9.internal:8000"
    assert {"what": "url-credentials", "count": 1} in about["redacted"]
    facts = json.loads(found["2-host/facts.json"])
    assert (facts["--api-key"]["value"], facts["$HF_TOKEN"]["value"]) == ("[masked]", "[masked]")
    assert facts["n"] == {"value": 1}


def test_pseudonyms_leave_what_is_ours() -> None:
    found = kept(share=True)
    about = json.loads(found["recording.json"])
    assert about["sources"][0] == {"target": "http://[masked]@host-1:8000", "folder": "1-server"}
    assert zstd.decompress(found["1-server/metrics.prom.zst"]).decode() == (
        '# at 0.000\nx{m="/path-1",h="host-1"} 1\n# at 1.000\nx{m="/path-1",h="host-1"} 2\n'
    )
    assert {item["what"]: item["count"] for item in about["redacted"]}.items() >= {"host": 1, "path": 1}.items()


def test_there_is_no_infinity_in_json() -> None:
    look = replace(Told().look(1.0), facts={"quota": Known(math.inf, origin="cgroup"), "x": Known(math.nan)})
    parts = taken([Source(SourceKind.HOST, "pid 7", "p", lambda: look)])
    found = json.loads(parts["1-host/facts.json"], parse_constant=lambda text: pytest.fail(text))
    assert found == {"quota": {"infinite": True, "from": "cgroup"}, "x": {"unknown": "invalid"}}

"""What clouds and stores of logs export, as the lines that it holds."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.sources.log.test_runs import posix, stats, table
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.observation import Observation
from vllm_doctor.sources.log import bytes_document, bytes_order
from vllm_doctor.sources.log.source import Log

LINES = [stats(at, generation=100.0 + at) for at in range(0, 60, 10)]
GENERATED = [100.0 + at for at in range(0, 60, 10)]
NANOSECONDS = [int(posix(at) * 1e9) for at in range(0, 60, 10)]


def iso(place: int) -> str:
    return f"2025-11-20T10:00:{10 * place:02d}.250Z"


def entry(place: int, line: str) -> dict[str, object]:
    """As Google's Cloud Logging keeps it."""
    of = {"type": "k8s_container", "labels": {"pod_name": "chat-0", "container_name": "server"}}
    return {"insertId": f"i{place}", "resource": of, "severity": "ERROR", "textPayload": f"{line}\n"} | {
        "timestamp": iso(place)
    }


def gcloud(lines: Sequence[str]) -> str:
    return json.dumps([entry(*one) for one in enumerate(lines)][::-1], indent=2)


def gcloud_payload(lines: Sequence[str]) -> str:
    return json.dumps([{"jsonPayload": {"message": x}, "timestamp": iso(n)} for n, x in enumerate(lines)])


def console(lines: Sequence[str]) -> str:
    """Entries copied one after the other."""
    return "\n\n".join(json.dumps(entry(*one), indent=2) for one in enumerate(lines))


def filter_log_events(lines: Sequence[str]) -> str:
    events = [
        {"logStreamName": "vllm/server/0a", "timestamp": at // 10**6, "message": line, "ingestionTime": 1}
        for at, line in zip(NANOSECONDS, lines, strict=True)
    ]
    return json.dumps({"events": events, "searchedLogStreams": [{"logStreamName": "s"}]}, indent=4)


def query_range(lines: Sequence[str]) -> str:
    values = [[str(at), line] for at, line in zip(NANOSECONDS, lines, strict=True)]
    stream = {"stream": {"pod": "chat-0"}, "values": values[::-1]}
    return json.dumps({"status": "success", "data": {"resultType": "streams", "result": [stream]}})


def grafana(lines: Sequence[str]) -> str:
    return json.dumps(
        [{"line": line, "timestamp": str(at)} for at, line in zip(NANOSECONDS, lines, strict=True)][::-1], indent=4
    )


def logcli(lines: Sequence[str]) -> str:
    return "\n".join(
        json.dumps({"labels": {"pod": "chat-0"}, "line": line, "timestamp": iso(n)})
        for n, line in reversed(list(enumerate(lines)))
    )


def elastic(lines: Sequence[str]) -> str:
    hits = [{"_index": "a", "_source": {"@timestamp": iso(n), "message": line}} for n, line in enumerate(lines)]
    return json.dumps({"took": 1, "hits": {"total": {"value": 6}, "hits": hits}}, indent=1)


def datadog(lines: Sequence[str]) -> str:
    found = [{"id": "x", "attributes": {"message": x, "timestamp": iso(n)}} for n, x in enumerate(lines)]
    return json.dumps({"data": found[::-1]})


def azure(lines: Sequence[str]) -> str:
    columns = [{"name": "TimeGenerated", "type": "datetime"}, {"name": "LogMessage", "type": "string"}]
    rows = [[iso(n), line] for n, line in enumerate(lines)]
    return json.dumps({"tables": [{"name": "PrimaryResult", "columns": columns, "rows": rows}]})


def container_app(lines: Sequence[str]) -> str:
    return "\n".join(json.dumps({"TimeStamp": iso(n), "Log": line}) for n, line in enumerate(lines))


def splunk(lines: Sequence[str]) -> str:
    return "\n".join(
        json.dumps({"preview": False, "result": {"_raw": line, "_time": iso(n)}}) for n, line in enumerate(lines)
    )


def one_text(lines: Sequence[str]) -> str:
    return json.dumps({"logs": "\n".join(lines)})


def one_per_line(lines: Sequence[str]) -> str:
    return json.dumps(lines, indent=1)


def written(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()


def datadog_csv(lines: Sequence[str]) -> str:
    return written([["Date", "Host", "Service", "Message"], *([iso(n), "h", "v", x] for n, x in enumerate(lines))])


def kibana_csv(lines: Sequence[str]) -> str:
    rows = [[f"Nov 20, 2025 @ 10:00:{10 * n:02d}.250", "chat-0", line] for n, line in enumerate(lines)]
    return written([["@timestamp", "kubernetes.pod.name", "message"], *rows[::-1]])


def portal_csv(lines: Sequence[str]) -> str:
    rows = [[f"11/20/2025, 10:00:{10 * n:02d}.250 AM", line] for n, line in enumerate(lines)]
    return written([["TimeGenerated [UTC]", "LogMessage"], *rows])


def grafana_csv(lines: Sequence[str]) -> str:
    rows = [[at // 10**6, '{"pod":"chat-0"}', x] for at, x in zip(NANOSECONDS, lines, strict=True)]
    return written([["Time", "labels", "Line"], *rows[::-1]])


Export = Callable[[Sequence[str]], str]
EXPORTS: list[Export] = [
    gcloud, gcloud_payload, console, filter_log_events, query_range, grafana, logcli, elastic, datadog, azure,
    container_app, splunk, one_text, one_per_line, datadog_csv, kibana_csv, portal_csv, grafana_csv,
]  # fmt: skip


def read(tmp_path: Path, text: str | bytes) -> Observation:
    path = tmp_path / "exported"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return Log([path], table(), threads=1).examine("the server")


def generated(seen: Observation) -> list[float]:
    """What was generated a second, from one round to the next."""
    rounds = [round for run in seen.runs for round in run.rounds]
    totals = [round.total(("vllm:generation_tokens_total", ())) or 0.0 for round in rounds]
    return [(total - before) / 10 for before, total in zip([0.0, *totals], totals, strict=False)]


@pytest.mark.parametrize("export", EXPORTS, ids=lambda export: export.__name__)
def test_an_export_is_read_as_the_log_that_it_holds(export: Export, tmp_path: Path) -> None:
    seen = read(tmp_path, export(LINES))
    assert seen.error is None
    [run] = seen.runs
    assert generated(seen) == pytest.approx(GENERATED)
    assert run.first_at is not None
    assert run.last_at is not None
    if export not in (one_text, one_per_line):  # which have no year
        assert run.first_at == pytest.approx(posix(0), abs=0.3)
    assert run.last_at - run.first_at == pytest.approx(50.0)


def test_two_pods_of_an_export_are_two_servers(tmp_path: Path) -> None:
    of_other = [entry(n, stats(10 * n, generation=5.0)) for n in range(6)]
    for one in of_other:
        one["resource"] = {"labels": {"pod_name": "chat-1", "container_name": "server"}}
    both = [*(entry(*one) for one in enumerate(LINES)), *of_other]
    assert [len(run.rounds) for run in read(tmp_path, json.dumps(both)).runs] == [6, 6]


def test_what_is_no_document_is_left_alone() -> None:
    docker = json.dumps({"log": f"{LINES[0]}\n", "stream": "stderr", "time": iso(0)}).encode()
    for head in (
        b"\n".join([docker, docker]), docker, b"[pod/a/b] INFO", b"[rank0]: x", b"[2025-11-20 10:00:00] x",
        b"{'a': 1}\n", b"a message, at some time, of a line\n", LINES[0].encode(), b"", b"[", b"{",
    ):  # fmt: skip
        assert not bytes_document.is_one(head), head


def test_a_document_that_ends_early_or_is_broken_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    whole = gcloud_payload(LINES).replace("}, {", "},\n{")
    for broken in (whole[:-200], whole.replace('"jsonPayload": {', '"jsonPayload" {', 1)):
        seen = read(tmp_path, broken)
        assert seen.error is None
        assert len(generated(seen)) >= 5
        assert any("broken or cut" in note for note in seen.notes)


def test_the_head_of_a_table_may_stand_in_it_again_and_fields_may_have_lines(tmp_path: Path) -> None:
    head, *rows = datadog_csv(LINES).splitlines(keepends=True)
    many = [head, *rows[:3], head, f'{iso(3)},h,v,"{LINES[3]}\nanother line"\n', *rows[4:]]
    assert generated(read(tmp_path, "".join(many))) == pytest.approx(GENERATED)


LARGE = 4_000_000
HOSTILE = {
    "deep": (b'[{"a":', b"["),
    "deep objects": (b"[", b'{"a":'),
    "deep, of lines": (b"[\n", b'{"a":[\n'),
    "answers in answers": (b'{"entries":[', b'{"entries":['),
    "empty entries": (b"[{}", b",{}"),
    "tiny entries": (b'[{"log":"x"}', b',{"log":"a"}'),
    "one large entry": (b'[{"log":[', b"[],"),
    "one large text": (b'[{"log":"', b"x"),
    "broken entries": (b"[", b'{"log"\n'),
    "entries that are no text": (b"[", b'{"log":"\n'),
    "backslashes": (b'[{"a":"', b"\\"),
    "quotes": (b'[{"', b'"'),
    "a large stream": (b'{"data":{"result":[{"stream":{},"values":[["1","a"]', b',["1","a"]'),
    "an open field": (b'timestamp,message\n"a,', b"x,"),
    "tiny rows": (b"timestamp,message\n", b"a,b\n"),
    "commas": (b"timestamp,message\n", b","),
    "a long number": (b'[{"log":"', b'"},{"log":1'),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_documents_end_soon(name: str, tmp_path: Path) -> None:
    begin, unit = HOSTILE[name]
    assert read(tmp_path, begin + unit * (LARGE // len(unit))).error is not None


def test_a_document_that_is_nested_too_deeply_is_refused_in_one_line() -> None:
    head = b'[{"a":' + b"[" * 100_000
    with pytest.raises(SourceError) as refused:
        list(bytes_document.entries(head, iter([head]), []))
    assert str(refused.value) == "its JSON is nested too deeply to be a log's"


def test_nothing_of_a_document_is_run(tmp_path: Path) -> None:
    planted = f"__import__('pathlib').Path({str(tmp_path / 'ran')!r}).touch()"
    for text in (json.dumps([{"log": planted}]), f"time,message\n1,{planted}\n", f'[{{"log": {planted}}}]'):
        assert read(tmp_path, text).error is not None
    assert not (tmp_path / "ran").exists()


def test_one_that_is_too_long_is_not_turned_round_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bytes_order, "MOST_TURNED", 2000)
    assert bytes_order.TOO_LONG in read(tmp_path, gcloud(LINES)).notes

"""The source that asks a Prometheus: what it says of engines, and what is said of what is none."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

import pytest

from tests.fake_prometheus import AT, FakePrometheus, Target, error, targets, vector
from tests.making import shipped_catalogue
from tests.serving import Answer, CutError, Request, Route, serving
from vllm_doctor.model.errors import SourceError, UsageError
from vllm_doctor.model.reading import Known, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.prometheus import survey as prometheus
from vllm_doctor.prometheus.query import RAY, Matcher, matchers
from vllm_doctor.prometheus.survey import Prometheus, Survey
from vllm_doctor.sources.server import fetch
from vllm_doctor.sources.server.access import Access

CATALOGUE = shipped_catalogue()


def surveyed(
    routes: Mapping[str, Route], select: str = "", window: float = 600.0, access: Access | None = None, prefix: str = ""
) -> Survey:
    with serving(routes) as server:
        asked = Prometheus(server.url + prefix, access)
        try:
            wanted = matchers(select) if select else ()
            return asked.survey(CATALOGUE, wanted, window, AT, time.monotonic() + 60)
        finally:
            asked.close()


def refused(routes: Mapping[str, Route], kind: str, select: str = "") -> str:
    with pytest.raises(SourceError) as caught:
        surveyed(routes, select)
    assert caught.value.kind == kind
    assert "\n" not in str(caught.value)
    return str(caught.value)


def fake(*recordings: str) -> FakePrometheus:
    return FakePrometheus(zip(targets(len(recordings)), recordings, strict=True))


def value(survey: Survey, signal: str, engine: int) -> object:
    reading = survey.read(signal, engine)[1]
    return reading.value if isinstance(reading, Known) else reading.reason


def place(survey: Survey, instance: str) -> int:
    return next(n for n, engine in enumerate(survey.engines) if dict(engine)["instance"] == instance)


def test_the_labels_of_a_source() -> None:
    assert prometheus.chosen("prom+http://h:9090/?pod=a%20b&instance=x:1") == (
        Matcher("pod", "=", "a b"),
        Matcher("instance", "=", "x:1"),
    )
    assert prometheus.chosen("prom+http://h:9090") == ()


@pytest.mark.parametrize("query", ["?pod", '?a"b=c', "?a b=c", "?=c"])
def test_what_are_no_labels_of_a_source(query: str) -> None:
    with pytest.raises(UsageError, match="pod=x"):
        prometheus.chosen(f"prom+http://h:9090/{query}")


def test_what_is_no_url_of_a_prometheus_is_refused_without_its_password() -> None:
    with pytest.raises(UsageError, match="not a URL") as refused:
        prometheus.chosen("prom+http://user:s3cret@[h:9090/")
    assert "s3cret" not in str(refused.value)


def test_every_engine_is_told_with_its_own_values() -> None:
    survey = surveyed(fake("preemption", "healthy-busy").routes())
    sick, well = place(survey, "host-0:8000"), place(survey, "host-1:8000")
    assert value(survey, "preemptions_per_second", sick) != 0
    assert value(survey, "preemptions_per_second", well) == 0
    assert value(survey, "kv_blocks", sick) == 80  # a label of cache_config_info, which has no model_name
    assert value(survey, "kv_blocks", well) == 4096 or value(survey, "kv_blocks", well) == 8192
    assert value(survey, "prefix_caching__info", sick) is True
    assert value(survey, "speculative_decoding__present", sick) is False


def test_the_number_of_queries_does_not_hang_on_the_number_of_engines() -> None:
    few, many = fake("healthy-busy"), fake(*["healthy-busy"] * 30)
    surveyed(few.routes())
    surveyed(many.routes())
    assert len(few.queries) == len(many.queries) < 140


def test_what_is_asked_with_a_query() -> None:
    asked = fake("healthy-busy")
    surveyed(asked.routes(), window=90)
    assert {form["time"] for form in asked.queries} == {f"{AT:.3f}"}
    assert all(1 <= int(form["timeout"].removesuffix("s")) <= 60 for form in asked.queries)
    assert any("[90000ms]" in form["query"] for form in asked.queries)
    assert {form["nocache"] for form in asked.queries} == {"1"}  # VictoriaMetrics: for this moment, not for 30 s before


def test_a_series_that_has_lost_its_server_is_of_nobody() -> None:
    asked = fake("preemption", "healthy-busy")

    def answer(request: Request) -> Answer:
        rows = asked.result(asked._form(request)["query"])
        if b"cache_config_info" not in request.body:
            return vector(rows)
        return vector([({n: v for n, v in labels.items() if n not in ("job", "instance")}, of) for labels, of in rows])

    survey = surveyed({"/api/v1/query": answer})
    assert [type(survey.read("kv_blocks", engine)[1]) for engine in (0, 1)] == [Unknown, Unknown]
    assert any("cache_config_info have lost instance, job" in note for note in survey.notes)


def test_a_selected_engine_is_the_only_one() -> None:
    both = FakePrometheus(
        [
            ({"job": "vllm", "instance": "a:1", "pod": "p"}, "idle"),
            ({"job": "vllm", "instance": "b:1", "pod": "q"}, "idle"),
        ]
    )
    survey = surveyed(both.routes(), 'pod="q"')
    assert [dict(engine)["instance"] for engine in survey.engines] == ["b:1"]
    assert survey.gone == ()


def test_the_labels_of_servers() -> None:
    """Those in which they differ, and those by which people know them; not what is the same for all."""
    two = [
        {**target, "namespace": "prod", "team": "same", "zone": zone}
        for target, zone in zip(targets(2), "ab", strict=True)
    ]
    survey = surveyed(FakePrometheus([(target, "idle") for target in two]).routes())
    assert survey.identity == ("namespace", "job", "instance", "zone")


def test_data_parallel_engines_of_one_server() -> None:
    survey = surveyed(fake("data-parallel", "idle").routes())
    engines = [n for n, e in enumerate(survey.engines) if dict(e)["instance"] == "host-0:8000"]
    assert len(engines) == 2
    assert [value(survey, "engines", n) for n in engines] == [2.0, 2.0]
    assert value(survey, "server_running", engines[0]) == value(survey, "server_running", engines[1])
    assert dict(survey.read("server_running", engines[0])[0]).keys() == {"job", "instance"}


def test_rays_names() -> None:
    ray = FakePrometheus([(target, "preemption") for target in targets(2)], prefix=RAY)
    survey = surveyed(ray.routes())
    assert value(survey, "kv_blocks", 0) == 80
    assert all("vllm:" not in form["query"] for form in ray.queries if "__name__" not in form["query"])


def test_a_quantile_has_the_bounds_of_its_bucket() -> None:
    reading = surveyed(fake("preemption").routes()).read("ttft_p99", 0)[1]
    assert isinstance(reading, Known)
    assert reading.bounds == (2.5, 5.0)


def test_an_engine_that_was_scraped_once_has_no_rates() -> None:
    once = FakePrometheus([(target, "preemption") for target in targets(1)], scrapes=1)
    survey = surveyed(once.routes())
    assert value(survey, "preemptions_per_second", 0) is Reason.FIRST_SCRAPE
    assert isinstance(value(survey, "requests_running", 0), float)


def test_why_a_signal_is_not_known() -> None:
    survey = surveyed(fake("idle", "healthy-busy").routes())
    idle = place(survey, "host-0:8000")
    assert value(survey, "itl_mean", idle) is Reason.IDLE
    assert value(survey, "draft_acceptance", idle) is Reason.ABSENT


def test_an_engine_that_is_gone_and_one_that_does_not_answer() -> None:
    asked = fake("idle", "idle", "idle")
    lost, moved = asked.up[1][0], asked.up[2][0]
    asked.lose(lost)
    asked.lose(moved)
    asked.up = [(target, 0.0 if target == lost else 1.0) for target, _ in asked.up[:2]]
    survey = surveyed(asked.routes())
    assert [dict(engine)["instance"] for engine in survey.engines] == ["host-0:8000"]
    assert [labels["instance"] for labels in survey.gone] == ["host-1:8000", "host-2:8000"]
    assert [labels["instance"] for labels in survey.down] == ["host-1:8000"]
    assert any("do not answer" in note and "host-1:8000" in note for note in survey.notes)
    assert any("and gone" in note and "host-2:8000" in note for note in survey.notes)


def test_warnings_are_told_and_make_the_list_of_engines_a_part() -> None:
    asked = fake("idle")
    asked.warnings = ["receive series from 10.0.0.7:10901: rpc error", "\x1b[2J"]
    survey = surveyed(asked.routes())
    assert survey.is_partial
    assert any("rpc error" in note for note in survey.notes)


def test_a_warning_of_a_later_query_does_not() -> None:
    asked = fake("idle")

    def answer(request: Request) -> Answer:
        asked.warnings = ["slow"] if len(asked.queries) > 5 else []
        return asked.answer(request)

    survey = surveyed({"/api/v1/query": answer})
    assert not survey.is_partial
    assert any("slow" in note for note in survey.notes)


def test_replicas_that_are_not_deduplicated() -> None:
    one = {"job": "vllm", "instance": "a:1"}
    twice: list[Target] = [{**one, "prometheus_replica": "0"}, {**one, "prometheus_replica": "1"}]
    survey = surveyed(FakePrometheus([(target, "idle") for target in twice]).routes())
    assert any("prometheus_replica" in note and "deduplicate" in note for note in survey.notes)


def test_engines_that_cannot_be_told_apart() -> None:
    rows = [({"__name__": "vllm:num_requests_running", "engine": "0", "a.b": b}, 1.0) for b in "xy"]
    said = refused({"/api/v1/query": lambda request: vector(rows)}, "collision")
    assert "labels are the same" in said


def test_engines_under_both_names_are_one() -> None:
    rows = [
        ({"__name__": name, "engine": "0", "instance": "a:1"}, 1.0)
        for name in ("vllm:num_requests_running", "ray_vllm_num_requests_running")
    ]
    asked: list[str] = []

    def answer(request: Request) -> Answer:
        asked.append(request.body.decode())
        return vector(rows if len(asked) == 1 else [])

    assert len(surveyed({"/api/v1/query": answer}).engines) == 1
    assert all("ray_" not in body for body in asked[1:])


def test_a_query_that_is_refused_leaves_its_signal_unknown() -> None:
    asked = fake("preemption")
    cannot = error(422, "execution", "found duplicate series for the match group")

    def answer(request: Request) -> Answer:
        return cannot(request) if b"num_preemptions_total" in request.body else asked.answer(request)

    survey = surveyed({"/api/v1/query": answer})
    assert value(survey, "preemptions_per_second", 0) is Reason.INVALID
    assert isinstance(value(survey, "requests_running", 0), float)
    assert any("preemptions_per_second" in note and "duplicate series" in note for note in survey.notes)


def test_a_series_that_comes_twice_is_told() -> None:
    asked = fake("idle")

    def answer(request: Request) -> Answer:
        rows = asked.result(asked._form(request)["query"])
        return vector([*rows, *rows] if b"kv_cache_usage_perc" in request.body else rows)

    assert any("came twice" in note for note in surveyed({"/api/v1/query": answer}).notes)


def test_an_old_api_is_asked_by_get() -> None:
    asked = fake("idle")

    def answer(request: Request) -> Answer:
        return Answer(status=405) if request.method == "POST" else asked.answer(request)

    survey = surveyed({"/api/v1/query": answer})
    assert len(survey.engines) == 1


def test_a_path_before_the_api() -> None:
    asked = fake("idle")
    assert surveyed({"/prometheus/api/v1/query": asked.answer}, prefix="/prometheus/graph").engines


def test_a_name_and_a_password() -> None:
    asked = fake("idle")
    with serving(asked.routes()) as server:
        one = Prometheus(server.url.replace("http://", "http://me:secret@"))
        one.survey(CATALOGUE, (), 60, AT, time.monotonic() + 60)
        one.close()
        assert {request.headers["authorization"] for request in server.requests} == {"Basic bWU6c2VjcmV0"}
        assert "secret" not in one.target


def test_headers_are_sent() -> None:
    asked = fake("idle")
    with serving(asked.routes()) as server:
        one = Prometheus(server.url, Access({"Authorization": "Bearer abc", "X-Scope-OrgID": "team"}))
        one.survey(CATALOGUE, (), 60, AT, time.monotonic() + 60)
        one.close()
        assert {request.headers["x-scope-orgid"] for request in server.requests} == {"team"}


MATRIX = b'{"status":"success","data":{"resultType":"matrix","result":[]}}'
SAMPLES = "query processing would load too many samples into memory in query execution"


def one_answer(answer: Answer) -> dict[str, Route]:
    return {"/api/v1/query": lambda request: answer}


@pytest.mark.parametrize(
    ("routes", "kind", "says"),
    [
        ({}, "not-prometheus", "404"),
        (one_answer(Answer(b"<html>Grafana</html>")), "not-prometheus", "no JSON of that API"),
        (one_answer(Answer(b'{"detail": "Not Found"}', 404)), "not-prometheus", "404"),
        (one_answer(Answer(b"[" * 100_000)), "not-prometheus", "no JSON"),
        (one_answer(Answer(MATRIX)), "not-prometheus", "vector"),
        (one_answer(Answer(b'{"status":"success"}')), "not-prometheus", "vector"),
        (one_answer(Answer(b"", 302, {"Location": "https://login.example/"})), "redirect", "login.example"),
        (one_answer(Answer(b"", 405)), "not-prometheus", "405"),
        (one_answer(Answer(b"denied", 401)), "denied", "--token-file"),
        (one_answer(Answer(b"denied", 403)), "denied", "--header"),
        (one_answer(Answer(b"no", 500)), "server-error", "500"),
        (one_answer(Answer(b"upstream", 503)), "timeout", "--timeout"),
        ({"/api/v1/query": error(503, "timeout", "query timed out")}, "timeout", "timed out"),
        ({"/api/v1/query": error(422, "execution", SAMPLES)}, "too-large", "--select"),
        ({"/api/v1/query": error(422, "execution", "hit the max number of series limit")}, "too-large", "--select"),
        ({"/api/v1/query": error(400, "bad_data", "parse error: unexpected character")}, "refused", "parse error"),
        ({"/api/v1/query": error(422, "execution", "evil \x1b[2J\n text")}, "refused", "evil"),
    ],
)  # fmt: skip
def test_what_goes_wrong_is_said_in_one_line(routes: Mapping[str, Route], kind: str, says: str) -> None:
    assert says in refused(routes, kind)


def test_a_server_that_hangs_up() -> None:
    def cut(request: Request) -> Answer:
        raise CutError

    assert "cannot be reached" in refused({"/api/v1/query": cut}, "unreachable")


def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MAX_BODY", 10_000)
    assert "larger" in refused({"/api/v1/query": lambda request: Answer(b" " * 20_000)}, "too-large")


def test_too_many_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "MAX_ENGINES", 2)
    assert "--select" in refused(fake("idle", "idle", "idle").routes(), "too-large")


def empty(rows: Callable[[str], list[tuple[dict[str, str], float]]]) -> dict[str, Route]:
    from urllib.parse import parse_qs

    return {"/api/v1/query": lambda request: vector(rows(parse_qs(request.body.decode())["query"][0]))}


def test_an_empty_prometheus() -> None:
    assert "is empty" in refused(empty(lambda query: []), "no-vllm")


def test_one_without_vllm_says_which_jobs_it_has() -> None:
    jobs = [({"job": "node"}, 12.0), ({"job": "kubelet\x1b[2J"}, 3.0), ({}, 1.0)]
    said = refused(empty(lambda query: jobs if "by (job)" in query else []), "no-vllm")
    assert "node (12), kubelet" in said
    assert "no name (1)" in said


def test_a_selection_that_leaves_nothing() -> None:
    said = refused(empty(lambda query: [({}, 7.0)] if query.startswith("count(") else []), "no-vllm", 'pod="x"')
    assert '7 vLLM engines, none of them with pod="x"' in said


def test_one_server_as_an_observation() -> None:
    with serving(fake("preemption", "idle").routes()) as server:
        asked = Prometheus(server.url)
        one = prometheus.OneServer(asked, CATALOGUE, matchers('instance="host-0:8000"'), "prom+http://h/?instance=x")
        seen = one.examine(600, time.monotonic() + 60)
        assert seen.error is None
        assert seen.evaluated is not None
        assert (seen.evaluated.seconds, seen.evaluated.scrapes) == (600, 25)
        all_of_them = prometheus.OneServer(asked, CATALOGUE, (), "prom+http://h/").examine(600, time.monotonic() + 60)
        assert all_of_them.error is not None
        assert "2 servers" in all_of_them.error.message
        assert "?instance=host-0%3A8000" in all_of_them.error.message
        asked.close()


def test_a_followed_server_looks_as_far_back_as_was_asked() -> None:
    asked = fake("idle")
    with serving(asked.routes()) as server:
        source = Prometheus(server.url)
        seen = prometheus.Followed(prometheus.OneServer(source, CATALOGUE, (), "x"), 600).look(30)
        source.close()
    assert seen.error is None
    assert any("[600000ms]" in form["query"] for form in asked.queries)


def test_an_engine_without_a_signal_is_unknown_not_zero() -> None:
    survey = surveyed(fake("idle").routes())
    told = survey.evaluated([0])
    assert all(isinstance(r, Unknown | Known) for of in told.readings.values() for r in of.values())
    assert isinstance(next(iter(told.readings["draft_acceptance"].values())), Unknown)


POD = {"job": "vllm", "instance": "10.0.0.1:8000", "namespace": "prod", "pod": "llama-0", "container": "vllm"}


def in_kubernetes(target: Target, **others: list[tuple[Target, float]]) -> Survey:
    asked = FakePrometheus([(target, "idle")])
    asked.others = dict(others)
    return surveyed(asked.routes())


def test_other_exporters_tell_of_the_same_pod() -> None:
    own: Target = {"namespace": "prod", "pod": "llama-0", "container": "vllm"}
    sidecar: Target = {**own, "container": "istio-proxy"}
    survey = in_kubernetes(
        POD,
        container_cpu_cfs_throttled_periods_total=[(sidecar, 0.9), (own, 0.25)],
        DCGM_FI_DEV_GPU_UTIL=[
            ({"namespace": "prod", "pod": "llama-0"}, 0.4),
            ({"namespace": "prod", "pod": "other"}, 1.0),
        ],
    )
    throttled = survey.read("cpu_throttled_share", 0)[1]
    assert throttled == Known(0.25)
    assert isinstance(throttled, Known)
    assert throttled.origin == "cadvisor"
    assert value(survey, "gpu_utilization", 0) == 0.4
    assert value(survey, "cpu_quota", 0) is Reason.NOT_LOCAL  # it has none, or nobody tells


def test_what_names_no_container_is_of_nobody() -> None:
    pod: Target = {"namespace": "prod", "pod": "llama-0"}
    survey = in_kubernetes(POD, container_cpu_cfs_throttled_periods_total=[(pod, 0.9)])
    assert value(survey, "cpu_throttled_share", 0) is Reason.NOT_LOCAL


def test_exporters_are_asked_only_where_they_can_be_joined() -> None:
    asked = FakePrometheus([({"job": "vllm", "instance": "a:1", "pod": "p", "namespace": "n"}, "idle")])
    surveyed(asked.routes())
    texts = [form["query"] for form in asked.queries]
    assert any("DCGM_" in text and "and on (namespace, pod) vllm:num_requests_running" in text for text in texts)
    assert not any("container_cpu" in text for text in texts)
    bare = fake("idle")
    surveyed(bare.routes())
    assert not any("DCGM_" in form["query"] for form in bare.queries)


@pytest.mark.parametrize("count", ["NaN", "+Inf", "1e308", "-1e29"])
def test_a_count_of_scrapes_that_is_none_fails_no_fleet(count: str) -> None:
    shown = fake("preemption", "preemption")

    def route(request: Request) -> Answer:
        answer = shown.answer(request)
        if "count_over_time" not in shown.queries[-1]["query"]:
            return answer
        told = json.loads(bytes(answer.body))  # type: ignore[arg-type]
        told["data"]["result"][0]["value"][1] = count
        return Answer(json.dumps(told).encode())

    with serving({"/api/v1/query": route}) as server:
        one = Prometheus(server.url)
        found = one.survey(shipped_catalogue(), (), 600.0, AT, time.monotonic() + 60)
        one.close()
    assert len(found.engines) == 2
    assert sorted(found.scrapes)[0] < 2 < sorted(found.scrapes)[1]

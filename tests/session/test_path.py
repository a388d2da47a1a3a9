"""Several sources with roles as one path: what each hop takes, and which one is named."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from tests.making import shipped_catalogue, shipped_rules
from tests.path_pages import A, B, counted, histogram, litellm, observed, real, server, vllm_router
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.kinds import SourceKind, State
from vllm_doctor.model.observation import Observation
from vllm_doctor.model.path import PathSeen
from vllm_doctor.model.reading import Known
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Problem, Report, Verdict
from vllm_doctor.session.judge import judge

AT = datetime(2026, 11, 24, tzinfo=UTC)
EPP = "http://epp:9090"
OF = '{engine="0",model_name="m"}'


def judged(*observations: Observation) -> Report:
    return judge(observations, shipped_rules(), shipped_catalogue(), {"goal": "throughput"}, AT)


def path_of(*observations: Observation) -> PathSeen:
    path = judged(*observations).path
    assert path is not None
    return path


def milliseconds(path: PathSeen) -> dict[str, float | Reason]:
    return {
        hop.hop: round(float(hop.seen.value) * 1000, 1) if isinstance(hop.seen, Known) else hop.seen
        for hop in path.hops
    }


def blamed(path: PathSeen) -> dict[str, str | None]:
    return {hop.hop: hop.blamed for hop in path.blamed}


# ---- gateway, router, servers


def test_real_pages_are_one_path_without_a_word_of_their_roles() -> None:
    path = path_of(real("b"), real("vllm-router"), real("a"), real("litellm"))
    assert [(source.role, source.product) for source in path.sources] == [
        ("gateway", "LiteLLM"), ("router", "vLLM router"), ("server", ""), ("server", ""),
    ]  # fmt: skip
    assert isinstance(path.total, Known)
    assert (round(float(path.total.value), 3), path.requests) == (0.159, 60)
    assert milliseconds(path) == {
        "gateway-queue": 8.3, "gateway": 9.3, "gateway-to-router": 12.0, "to-servers": 1.2, "api-servers": 1.5,
        "queue": 0.0, "prefill": 15.0, "decode": 108.9,
    }  # fmt: skip
    assert path.rest == pytest.approx(0.0029, abs=0.0001)


def test_where_nothing_is_held_up_no_hop_is_named() -> None:
    report = judged(real("litellm"), real("vllm-router"), real("a"), real("b"))
    assert report.path is not None
    assert not report.path.blamed
    assert {id for id, state in report.states.items() if state in (State.WARNING, State.CRITICAL)} == set()


@pytest.mark.parametrize("delay", [0.02, 0.05, 0.2])
@pytest.mark.parametrize("hop", ["gateway-queue", "gateway", "gateway-to-router", "to-servers"])
def test_the_hop_that_takes_the_time_is_named_and_no_other(hop: str, delay: float) -> None:
    queue = delay if hop == "gateway-queue" else 0.004
    router = 0.202 + (delay if hop == "to-servers" else 0)
    api = router + 0.005 + (delay if hop == "gateway-to-router" else 0)
    total = api + queue + 0.004 + (delay if hop == "gateway" else 0)
    path = path_of(litellm(total=total, api=api, queue=queue), vllm_router(total=router), server(A, 50), server(B, 50))
    assert list(blamed(path)) == [hop]
    named = path.blamed[0].seen
    assert isinstance(named, Known)
    assert named.value == pytest.approx(delay, abs=0.006)


def test_a_hop_is_known_by_the_numbers_it_is_the_difference_of() -> None:
    path = path_of(litellm(total=0.27, api=0.26), vllm_router(total=0.205), server(A, 50), server(B, 50))
    hop = path.blamed[0]
    assert (hop.hop, hop.blamed) == ("gateway-to-router", "path-to-router-slow")
    assert hop.by == "the gateway waits 260 ms, the router takes 205 ms"
    assert hop.share == pytest.approx(0.055 / 0.27)


def test_a_hop_that_is_long_and_a_small_part_of_the_request_is_not_named() -> None:
    slow = server(A, http=4.0, engine=3.995, decode=3.9)
    assert not path_of(litellm(total=4.05, api=4.01, queue=0.002), slow).blamed


def test_without_a_router_the_gateway_waits_for_the_servers() -> None:
    path = path_of(litellm(total=0.32, api=0.31), server(A))
    assert blamed(path) == {"to-servers": "path-to-servers-slow"}
    assert "gateway-to-router" not in milliseconds(path)


def test_servers_are_weighted_by_their_requests() -> None:
    path = path_of(litellm(total=0.22, api=0.21), server(A, 90, http=0.2), server(B, 10, http=0.25))
    assert milliseconds(path)["to-servers"] == 5.0  # 210 less 0.9 × 200 + 0.1 × 250


def test_a_server_without_a_request_says_nothing_of_how_long_they_take() -> None:
    assert milliseconds(path_of(litellm(), server(A, 100), server(B, 0)))["to-servers"] == 10.0


def test_where_servers_answer_others_too_the_way_to_them_is_unknown() -> None:
    report = judged(litellm(requests=100, total=0.42, api=0.41), server(A, 300))
    assert report.path is not None
    assert isinstance(milliseconds(report.path)["to-servers"], Reason)
    assert report.states["path-to-servers-slow"] is State.UNKNOWN
    assert report.path.rest is None


def test_a_router_that_counts_a_stream_to_its_headers_tells_no_way_to_the_servers() -> None:
    path = path_of(vllm_router(total=0.03), server(A, http=0.2))
    assert isinstance(milliseconds(path)["to-servers"], Reason)
    assert not path.blamed


def test_a_stream_is_no_loss_between_gateway_and_router() -> None:
    path = path_of(litellm(total=0.22, api=0.21), vllm_router(total=0.01), server(A, http=0.2))
    told = milliseconds(path)
    assert isinstance(told["gateway-to-router"], Reason)
    assert told["to-servers"] == 10  # by the gateway's own count, the router's time in it
    assert not path.blamed
    slow = path_of(litellm(total=0.27, api=0.26), vllm_router(total=0.01), server(A, http=0.2))
    assert blamed(slow) == {"to-servers": "path-to-servers-slow"}


def test_an_older_epp_tells_its_queue_and_the_choice() -> None:
    counts = {
        **histogram("inference_objective_request_duration_seconds", 100, 0.5, '{model_name="m"}'),
        **histogram("inference_extension_scheduler_e2e_duration_seconds", 100, 0.02),
        **histogram("inference_extension_flow_control_request_queue_duration_seconds", 100, 0.27),
    }
    path = path_of(counted(EPP, counts), server(A, http=0.2))
    told = milliseconds(path)
    assert (told["router-queue"], told["router"], told["to-servers"]) == (270, 20, 10)


# ---- who else stands in front


def test_epp_tells_its_queue_its_tokeniser_and_itself_apart() -> None:
    counts = {
        **histogram("llm_d_epp_request_duration_seconds", 100, 0.5, '{model_name="m"}'),
        **histogram("llm_d_epp_request_processing_duration_seconds", 100, 0.29),
        **histogram("llm_d_epp_flow_control_request_queue_duration_seconds", 100, 0.2, '{outcome="Dispatched"}'),
        **histogram("llm_d_epp_plugin_duration_seconds", 100, 0.06, '{plugin_type="token-producer"}'),
        **histogram("llm_d_epp_plugin_duration_seconds", 400, 0.001, '{plugin_type="queue-scorer"}'),
    }
    path = path_of(counted(EPP, counts), server(A, http=0.2))
    assert path.sources[0].product == "llm-d EPP"
    told = milliseconds(path)
    assert (told["router-queue"], told["router-tokenizing"], told["router"], told["to-servers"]) == (200, 60, 30, 10)
    assert blamed(path) == {
        "router-queue": "router-queue", "router-tokenizing": "router-tokenizing", "router": "router-slow",
    }  # fmt: skip
    assert path.blamed[0].hop == "router-queue"


def test_production_stacks_router_is_no_vllm_server() -> None:
    counts = histogram("vllm:request_latency_seconds", 100, 0.26, '{model="m",server="http://a:8000"}')
    gauges = {'vllm:num_requests_running{server="http://a:8000"}': 3.0, 'vllm:current_qps{server="http://a:8000"}': 9.0}
    report = judged(counted("http://router:8001", counts, gauges), server(A, http=0.2))
    assert report.patient.engines == 1
    assert report.path is not None
    assert blamed(report.path) == {"to-servers": "path-to-servers-slow"}
    assert [source.kind for source in report.sources] == [SourceKind.GATEWAY, SourceKind.SERVER]


def test_envoys_ai_gateway_and_ray_tell_the_whole() -> None:
    envoy = counted("http://envoy:1064", histogram("gen_ai_server_request_duration_seconds", 100, 0.26))
    assert blamed(path_of(envoy, server(A, http=0.2))) == {"to-servers": "path-to-servers-slow"}
    ray = histogram("ray_serve_http_request_latency_ms", 100, 260.0, '{route="/v1"}')
    path = path_of(server(A, http=0.2, more=ray))  # one page with both
    assert [source.role for source in path.sources] == ["gateway", "server"]
    assert milliseconds(path)["to-servers"] == 60


def test_what_shows_nothing_known_is_taken_with_a_role_and_refused_without() -> None:
    page = "# TYPE envoy_x counter\nenvoy_x 1\n"
    with pytest.raises(SourceError, match="not a vLLM server"):
        observed("http://envoy:9901", page, page)
    seen = observed("http://envoy:9901", page, page, role="gateway")
    assert seen.kind is SourceKind.GATEWAY
    assert seen.notes == ("gateway: its metrics are of no gateway or router that is known here",)
    report = judged(seen, server(A))
    assert report.path is not None
    assert milliseconds(report.path)["gateway"] is Reason.ABSENT


# ---- what is no path, and what is half of one


def test_servers_side_by_side_are_no_path() -> None:
    report = judged(server(A), server(B))
    assert report.path is None
    of_path = [rule.id for rule in shipped_rules() if rule.is_of_path]
    assert of_path
    assert {report.states[id] for id in of_path} == {State.NOT_APPLICABLE}


def test_a_gateway_alone_is_no_verdict() -> None:
    report = judged(litellm(total=0.5, api=0.2))
    assert report.error is not None
    assert report.error.kind == "no-server"
    assert report.path is not None
    assert blamed(report.path) == {"gateway": "gateway-slow"}
    assert judged(litellm()).verdict is Verdict.UNKNOWN


def test_what_is_judged_of_servers_does_not_change_by_the_gateway_before_them() -> None:
    alone, behind = judged(server(A), server(B)), judged(litellm(), server(A, 50), server(B, 50))
    of_path = {rule.id for rule in shipped_rules() if rule.is_of_path}
    for report in (alone, behind):
        assert len(report.engines) == 2
    assert {id: state for id, state in alone.states.items() if id not in of_path} == {
        id: state for id, state in behind.states.items() if id not in of_path
    }


def test_one_scrape_of_each_is_a_path_whose_times_are_unknown() -> None:
    page = "litellm_request_total_latency_metric_sum 3\nlitellm_request_total_latency_metric_count 4\n"
    path = path_of(observed("http://gateway:4000", page), server(A))
    assert milliseconds(path)["gateway"] is Reason.FIRST_SCRAPE
    assert not path.blamed


# ---- prefill and decode


def prefill(requests: float = 100, waiting: float = 0.0, running: float = 1.0, role: str = "prefill") -> Observation:
    return server(
        A, requests, http=0.12, engine=0.118, queue=0.01, prefill=0.1, decode=0.0, role=role,
        more=histogram("vllm:request_generation_tokens", requests, 1, OF),
        gauges={f"vllm:num_requests_waiting{OF}": waiting, f"vllm:num_requests_running{OF}": running,
                f"vllm:nixl_num_failed_transfers_total{OF}": 0.0, f"vllm:kv_cache_usage_perc{OF}": 0.3},
    )  # fmt: skip


def decode(
    queue: float = 0.03, transfer: float = 0.02, local: float = 16.0, waiting: float = 0.0, usage: float = 0.3,
    role: str = "decode",
) -> Observation:  # fmt: skip
    tokens = "vllm:prompt_tokens_by_source_total"
    return server(
        B, http=0.5 + queue, engine=0.495 + queue, queue=queue, prefill=0.02, decode=0.47, role=role,
        more={
            **histogram("vllm:nixl_xfer_time_seconds", 100, transfer, OF),
            f'{tokens}{{engine="0",source="local_compute"}}': 100 * local,
            f'{tokens}{{engine="0",source="external_kv_transfer"}}': 100 * (1000 - local),
            f'{tokens}{{engine="0",source="local_cache_hit"}}': 0.0,
        },
        gauges={f"vllm:num_requests_waiting{OF}": waiting, f"vllm:num_requests_running{OF}": 20.0,
                f"vllm:nixl_num_failed_transfers_total{OF}": 0.0, f"vllm:kv_cache_usage_perc{OF}": usage},
    )  # fmt: skip


def test_a_disaggregated_request_is_in_its_servers_one_after_the_other() -> None:
    path = path_of(vllm_router(total=0.66), prefill(), decode())
    assert milliseconds(path) == {
        "to-servers": 10.0, "api-servers": 7.0, "prefill-queue": 10.0, "prefill-compute": 100.0, "kv-transfer": 20.0,
        "kv-handover": 10.0, "decode-first": 20.0, "decode-rest": 470.0,
    }  # fmt: skip
    assert not path.blamed


def test_servers_show_by_themselves_what_they_are() -> None:
    assert [source.role for source in path_of(decode(role=""), prefill(role="")).sources] == ["prefill", "decode"]


def told(server: Observation, **facts: str) -> Observation:
    """The server with what its command or its manifest tells."""
    return replace(server, facts={name: Known(value, origin="cmdline") for name, value in facts.items()})


def as_role(server: Observation, kv_role: str) -> Observation:
    return told(server, **{"--kv-transfer-config": f'{{"kv_connector":"P2pNcclConnector","kv_role":"{kv_role}"}}'})


def roles(*observations: Observation) -> list[str]:
    path = judged(*observations).path
    return [] if path is None else [source.role for source in path.sources]


def test_flags_tell_what_servers_are_where_their_metrics_do_not() -> None:
    silent = decode(role="", local=1000.0)  # it gets no KV blocks at all
    assert roles(silent, server(A)) == []
    report = judged(as_role(silent, "kv_consumer"), as_role(server(A), "kv_producer"))
    assert report.path is not None
    assert [source.role for source in report.path.sources] == ["prefill", "decode"]
    assert report.states["prefill-on-decode"] is State.WARNING
    assert roles(as_role(silent, "kv_both"), as_role(server(A), "kv_both")) == []  # NIXL has it on either side


def test_a_manifest_tells_what_servers_are() -> None:
    silent, other = told(decode(role="", local=1000.0), role_written="decode"), told(server(A), role_written="prefill")
    assert roles(silent, other) == ["prefill", "decode"]


def test_llm_ds_decode_without_a_connector_is_a_whole_server() -> None:
    assert roles(told(server(A), role_written="decode"), told(server(B), role_written="decode")) == []
    assert roles(litellm(), told(server(A), role_written="decode")) == ["gateway", "server"]


def test_a_label_of_the_metrics_tells_a_prefill_server() -> None:
    labels = '{dynamo_component="prefill",engine="0",model_name="m"}'
    long = {f"vllm:num_requests_running{labels}": 1.0}
    assert roles(server(A, gauges=long), decode(role="")) == ["prefill", "decode"]


def test_what_the_user_says_goes_before_what_is_told() -> None:
    assert roles(as_role(decode(role="server"), "kv_consumer"), prefill()) == ["prefill", "server"]


def test_without_the_transfers_time_no_waiting_is_told_from_it() -> None:
    gets = 'vllm:prompt_tokens_by_source_total{engine="0",source="external_kv_transfer"}'
    blind = server(B, http=0.9, engine=0.89, queue=0.4, prefill=0.02, decode=0.47, role="decode", more={gets: 1e5})
    report = judged(prefill(), blind)
    assert report.path is not None
    hop = next(hop for hop in report.path.hops if hop.hop == "kv-handover")
    assert isinstance(hop.seen, Reason)
    assert hop.by == "400 ms before the decode server's first step; how much of it the transfer takes is not reported"
    assert report.states["kv-handover-slow"] is State.UNKNOWN


def test_handover_and_transfer_are_told_apart() -> None:
    assert blamed(path_of(prefill(), decode(queue=0.4, transfer=0.02))) == {"kv-handover": "kv-handover-slow"}
    assert blamed(path_of(prefill(), decode(queue=0.4, transfer=0.39))) == {"kv-transfer": "kv-transfer-slow"}


def test_prompts_that_a_decode_server_computes_itself_are_told() -> None:
    report = judged(prefill(), decode(local=600.0))
    found = next(finding for finding in report.findings if finding.rule == "prefill-on-decode")
    assert "60 %" in found.here
    assert judged(prefill(), decode(local=16.0)).states["prefill-on-decode"] is State.OK


def test_the_ratio_of_prefill_and_decode_is_judged_by_who_waits() -> None:
    states = judged(prefill(waiting=9, running=2), decode()).states
    assert (states["pd-too-little-prefill"], states["pd-too-little-decode"]) == (State.WARNING, State.OK)
    states = judged(prefill(running=0.2), decode(waiting=9, usage=0.97)).states
    assert (states["pd-too-little-prefill"], states["pd-too-little-decode"]) == (State.OK, State.WARNING)
    states = judged(
        prefill(waiting=9, running=2), decode(waiting=9, usage=0.97)
    ).states  # both are full: no ratio helps
    assert (states["pd-too-little-prefill"], states["pd-too-little-decode"]) == (State.OK, State.OK)


# ---- several servers that do the same


def test_one_server_that_gets_all_requests_is_told() -> None:
    waits = {f"vllm:num_requests_waiting{OF}": 12.0}
    report = judged(litellm(), server(A, 98, gauges=waits), server(B, 2))
    assert report.states["one-server-takes-all"] is State.WARNING
    assert judged(litellm(), server(A, 98), server(B, 2)).states["one-server-takes-all"] is State.INFO
    assert judged(litellm(), server(A, 60), server(B, 40)).states["one-server-takes-all"] is State.OK
    assert judged(litellm(), server(A, 100)).states["one-server-takes-all"] is State.NOT_APPLICABLE


def test_requests_that_come_one_after_the_other_are_no_fault() -> None:
    alone = {f"vllm:num_requests_running{OF}": 0.5}
    report = judged(litellm(), server(A, 98, gauges=alone), server(B, 2, gauges=alone))
    assert report.states["one-server-takes-all"] is State.OK


def rank(server: Observation, number: int) -> Observation:
    return (
        told(server, **{"--data-parallel-size": "2"})
        if number == 0
        else replace(server, facts={"--data-parallel-rank": Known(float(number), origin="cmdline")})
    )


def test_ranks_with_ports_of_their_own_are_one_path() -> None:
    assert judged(server(A, 98), server(B, 2)).path is None
    report = judged(rank(server(A, 98), 1), rank(server(B, 2), 2))
    found = next(finding for finding in report.findings if finding.rule == "one-server-takes-all")
    assert "98 %" in found.here
    assert [remedy.do[:24] for remedy in found.remedies] == ["Name all ranks' ports to", "Balance requests, not co"]
    assert judged(rank(server(A, 60), 1), rank(server(B, 40), 2)).states["one-server-takes-all"] is State.OK


def test_the_number_of_its_engine_tells_a_rank() -> None:
    later = '{engine="1",model_name="m"}'
    page = {
        **histogram("vllm:e2e_request_latency_seconds", 2, 0.2, later),
        **histogram("http_request_duration_seconds", 2, 0.2, '{handler="/v1/completions",method="POST"}'),
    }
    gauges = {f"vllm:num_requests_running{later}": 0.0, f"vllm:num_requests_waiting{later}": 0.0}
    report = judged(server(A, 98), counted(B, page, gauges))
    assert report.states["one-server-takes-all"] is State.INFO
    path = judged(server(A, 98), counted(B, page, gauges), server(EPP)).path  # two say nothing of ranks
    assert path is None


def cached(hits: float) -> dict[str, float]:
    return {f"vllm:prefix_cache_queries_total{OF}": 1e5, f"vllm:prefix_cache_hits_total{OF}": hits * 1e5}


def test_a_router_that_does_not_look_at_prefixes_is_told_where_there_are_some() -> None:
    blind = {
        **histogram("vllm_router_generate_duration_seconds", 100, 0.205),
        'vllm_router_policy_decisions_total{policy="round_robin",worker="a"}': 100.0,
    }
    router = counted("http://router:29000", blind)
    shared = judged(router, server(A, 50, more=cached(0.2)), server(B, 50, more=cached(0.3)))
    assert shared.states["prefix-routing-blind"] is State.INFO
    none = judged(router, server(A, 50, more=cached(0.01)), server(B, 50, more=cached(0.0)))
    assert none.states["prefix-routing-blind"] is State.OK


def test_a_prefix_index_that_is_wrong_is_told() -> None:
    counts = {
        **histogram("llm_d_epp_request_duration_seconds", 100, 0.205),
        **histogram("llm_d_epp_prefix_indexer_hit_ratio", 100, 0.8),
    }
    epp = counted(EPP, counts)
    assert judged(epp, server(A, more=cached(0.1))).states["prefix-index-stale"] is State.WARNING
    assert judged(epp, server(A, more=cached(0.75))).states["prefix-index-stale"] is State.OK


def test_a_gateway_that_does_not_answer_makes_no_ok() -> None:
    lost = Observation(
        SourceKind.GATEWAY, "http://gateway:4000", error=Problem("unreachable", "refused"), role="gateway"
    )
    report = judged(lost, server(A))
    assert report.error is not None
    assert report.verdict is not Verdict.OK

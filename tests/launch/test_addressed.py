"""Which start in a text each server is, by its URL."""

from __future__ import annotations

from vllm_doctor.launch.addressed import paired
from vllm_doctor.launch.source import read

SCRIPT = """\
vllm serve m --port 8100 --kv-transfer-config '{"kv_connector":"P2pNcclConnector","kv_role":"kv_producer"}' &
vllm serve m --port 8200 --kv-transfer-config '{"kv_connector":"P2pNcclConnector","kv_role":"kv_consumer"}' &
"""
POD = "spec: {containers: [{image: x, command: [vllm, serve, m]}]}"
MANIFEST = "".join(
    f"---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {{name: {name}}}\nspec: {{template: {{{POD}}}}}\n"
    for name in ("vllm-p", "vllm-d")
)


def places(text: str, *targets: str) -> list[int] | None:
    """Of the starts in the text, by target."""
    starts = read(text)
    found = paired(starts, targets)
    return None if found is None else [starts.index(start) for start in found]


def test_on_one_host_a_port_is_of_one_server() -> None:
    assert places(SCRIPT, "http://gpu:8200", "http://gpu:8100") == [1, 0]
    assert places(SCRIPT.replace("--port 8100", ""), "http://gpu:8000", "http://gpu:8200") == [0, 1]
    assert places(SCRIPT, "http://gpu:8200") == [1]


def test_a_port_that_the_text_does_not_tell_is_of_none() -> None:
    assert places(SCRIPT, "http://gpu:8100", "http://gpu:8300") is None
    assert places(SCRIPT.replace("8100", "$PORT"), "http://gpu:8100", "http://gpu:8200") is None
    assert places(SCRIPT.replace("8200", "8100"), "http://gpu:8100") is None
    assert places(SCRIPT, "http://gpu:8100", "http://gpu:8100/again") is None


def test_a_container_has_ports_of_its_own() -> None:
    run = "docker run -p 8100:8000 vllm/vllm-openai m\ndocker run -p 8200:8100 vllm/vllm-openai m --port 8100\n"
    assert places(run, "http://gpu:8100") is None


def test_in_kubernetes_names_tell() -> None:
    assert places(MANIFEST, "http://vllm-d.ns.svc:8000", "http://vllm-p-6f7c-x2x:8000") == [1, 0]
    assert places(MANIFEST, "http://vllm-dx:8000") is None
    assert places(MANIFEST, "http://127.0.0.1:8000") is None


def test_roles_of_one_object_are_told_by_their_pods_names() -> None:
    pod = "leaderWorkerTemplate: {workerTemplate: {" + POD + "}}"
    text = (
        "apiVersion: disaggregatedset.x-k8s.io/v1\nkind: DisaggregatedSet\nmetadata: {name: s}\n"
        f"spec: {{roles: [{{name: prefill, {pod}}}, {{name: decode, {pod}}}]}}\n"
    )
    assert places(text, "http://s-0-7d9-decode-0:8000", "http://s-0-7d9-prefill-0:8000") == [1, 0]
    assert places(text, "http://s:8000") is None


def test_what_is_no_url_is_of_none() -> None:
    assert places(SCRIPT, "server.log") is None
    assert places(SCRIPT, "http://[x") is None

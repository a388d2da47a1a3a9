"""Kubeconfigs, which lightkube reads; its own client reads the tests' API, too: that is one that a client accepts."""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from tests import kubernetes_api as k8s
from tests.serving import Served
from vllm_doctor.model.errors import DoctorError, SourceError, UsageError
from vllm_doctor.sources.kubernetes import cluster, kubeconfig

needs_lightkube = pytest.mark.skipif(
    __import__("importlib.util").util.find_spec("lightkube") is None, reason="the extra k8s is not installed"
)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def served(authority: trustme.CA) -> Iterator[Served]:
    with k8s.serving_api(k8s.Api(pods=[k8s.pod(f"p{n}") for n in range(25)], page=10), authority) as served:
        yield served


Write = Callable[..., Path]


@pytest.fixture
def write(served: Served, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """A kubeconfig with one context, in force."""

    def made(user: Any = None, of_cluster: Any = None, name: str = "config", **changes: Any) -> Path:
        data = base64.b64encode(authority.cert_pem.bytes()).decode()
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "prod",
            "clusters": [
                {
                    "name": "c",
                    "cluster": {"server": served.url, "certificate-authority-data": data, **(of_cluster or {})},
                }
            ],
            "contexts": [{"name": "prod", "context": {"cluster": "c", "user": "u", "namespace": "inference"}}],
            "users": [{"name": "u", "user": user or {"token": k8s.TOKEN}}],
            **changes,
        }
        path = tmp_path / name
        path.write_text(yaml.safe_dump(document))
        monkeypatch.setenv("KUBECONFIG", str(path))
        return path

    return made


def refused(context: str = "") -> DoctorError:
    with pytest.raises(DoctorError) as error:
        cluster.chosen(context, dict(os.environ))
    assert k8s.TOKEN not in str(error.value)
    return error.value


@needs_lightkube
def test_a_token(write: Write, served: Served) -> None:
    write()
    found = cluster.chosen("", dict(os.environ))
    assert (found.server, found.name, found.namespace) == (served.url, "context prod", "inference")
    assert found.credentials() == {"authorization": f"Bearer {k8s.TOKEN}"}
    assert k8s.TOKEN not in repr(found)


@needs_lightkube
def test_a_token_in_a_file_beside_it(write: Write, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{k8s.TOKEN}\n")
    write({"tokenFile": "token"})
    assert cluster.chosen("", dict(os.environ)).credentials() == {"authorization": f"Bearer {k8s.TOKEN}"}


@needs_lightkube
def test_a_credential_plugin_is_run_once(write: Write, tmp_path: Path) -> None:
    count = tmp_path / "count"
    script = f"""echo x >> {count}; echo '{{"status": {{"token": "{k8s.TOKEN}"}}}}'"""
    plugin = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "sh", "args": ["-c", script]}
    write({"exec": plugin})
    found = cluster.chosen("", dict(os.environ))
    assert [found.credentials() for _ in range(3)] == [{"authorization": f"Bearer {k8s.TOKEN}"}] * 3
    assert count.read_text() == "x\n"


@needs_lightkube
@pytest.mark.parametrize(
    ("plugin", "says"),
    [
        ({"command": "no-such-plugin"}, "is not installed: no-such-plugin"),
        ({"command": "sh", "args": ["-c", "echo no login >&2; exit 1"]}, "gives no credentials"),
        ({"command": "sh", "apiVersion": "client.authentication.k8s.io/v1"}, "gives no credentials"),
        ({"command": "sh", "args": ["-c", "echo {}"]}, "gives no credentials"),
    ],
)
def test_a_plugin_that_fails(plugin: dict[str, Any], says: str, write: Write) -> None:
    write({"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", **plugin}})
    found = cluster.chosen("", dict(os.environ))
    with pytest.raises(SourceError) as error:
        found.credentials()
    assert says in str(error.value)


@needs_lightkube
def test_a_plugin_that_waits_for_its_user(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubeconfig, "_PATIENCE", 0.1)
    plugin = {"apiVersion": "client.authentication.k8s.io/v1beta1", "command": "sleep", "args": ["0.5"]}
    write({"exec": plugin})
    with pytest.raises(SourceError, match="did not end"):
        cluster.chosen("", dict(os.environ)).credentials()


@needs_lightkube
def test_several_files_are_one(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    users = write(clusters=[], contexts=[], name="users")
    rest = write(users=[], name="rest")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}{os.pathsep}{rest}{os.pathsep}{users}")
    assert cluster.chosen("", dict(os.environ)).credentials() == {"authorization": f"Bearer {k8s.TOKEN}"}


@needs_lightkube
def test_what_no_file_has(write: Write) -> None:
    write()
    assert "did you mean prod?" in str(refused("prd"))
    assert "it has prod" in str(refused("elsewhere"))
    write(**{"current-context": None})
    assert "no current-context" in str(refused())
    write(users=[])
    assert "cannot be read" in str(refused())
    write(clusters=[{"name": "c", "cluster": {"server": 7}}])
    assert "cannot be read" in str(refused())


@needs_lightkube
@pytest.mark.parametrize("key", ["proxy-url", "tls-server-name"])
def test_what_lightkube_would_not_heed_is_said(key: str, write: Write) -> None:
    write(of_cluster={key: "elsewhere"})
    assert f"({key}), which is not supported" in str(refused())


@needs_lightkube
def test_no_token_goes_over_a_network_in_clear_text(write: Write) -> None:
    write(of_cluster={"server": "http://10.0.0.1:8080"})
    assert "without TLS" in str(refused())
    write(of_cluster={"server": "http://127.0.0.1:8001"})
    assert cluster.chosen("", dict(os.environ)).server == "http://127.0.0.1:8001"


@needs_lightkube
def test_who_answers_is_not_checked_where_the_kubeconfig_says_so(write: Write) -> None:
    path = write()
    document = yaml.safe_load(path.read_text())
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    document["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    path.write_text(yaml.safe_dump(document))
    found = cluster.chosen("", dict(os.environ))
    assert "who answers was not checked" in found.notes[0]


@pytest.mark.parametrize("text", ["users: [{token: secret-of-mine}", "[]", "- x", "contexts: 7", "\0"])
def test_a_file_that_is_no_kubeconfig(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lightkube")
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    error = refused()
    assert isinstance(error, SourceError)
    assert "secret-of-mine" not in str(error)


def test_no_cluster_is_known(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no cluster is known"):
        cluster.chosen("", {"HOME": str(tmp_path)})
    with pytest.raises(UsageError, match="there is no kubeconfig"):
        cluster.chosen("prod", {"HOME": str(tmp_path)})


def test_a_pod_without_a_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "SERVICE_ACCOUNT", tmp_path)
    with pytest.raises(SourceError, match="this pod has no token"):
        cluster.chosen("", {"HOME": str(tmp_path), "KUBERNETES_SERVICE_HOST": "10.96.0.1"})


def test_without_lightkube_one_line_says_what_to_install(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write()
    monkeypatch.setitem(__import__("sys").modules, "lightkube.config.client_adapter", None)
    assert "pip install lightkube" in str(refused())


@needs_lightkube
def test_lightkubes_own_client_reads_the_tests_api(write: Write) -> None:
    from lightkube import Client, KubeConfig
    from lightkube.core.exceptions import ApiError
    from lightkube.resources.apps_v1 import Deployment
    from lightkube.resources.core_v1 import Node, Pod

    client: Any = Client(config=KubeConfig.from_file(write()), trust_env=False)
    with contextlib.closing(client._client._client):
        pods = list(client.list(Pod, namespace=k8s.NAMESPACE, chunk_size=10))
        assert [pod.metadata.name for pod in pods] == [f"p{n}" for n in range(25)]
        assert pods[0].status.containerStatuses[0].state.running.startedAt is not None
        assert client.get(Deployment, "vllm", namespace=k8s.NAMESPACE).spec.selector.matchLabels == {"app": "vllm"}
        assert client.get(Node, "gpu-node-1").status.allocatable["nvidia.com/gpu"] == "8"
        with pytest.raises(ApiError) as missing:
            client.get(Pod, "none", namespace=k8s.NAMESPACE)
        assert missing.value.status.reason == "NotFound"

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.host.fake_proc import FakeProc
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.host.process import Listener, ServerProcess, find, listening_on, of_pid

SERVE = ["/opt/vllm/bin/python", "/opt/vllm/bin/vllm", "serve", "/models/tiny"]
TRACKER = ["/opt/vllm/bin/python", "-B", "-c", "from multiprocessing.resource_tracker import main;main(31)"]
SPAWNED = [
    "/opt/vllm/bin/python", "-B", "-c",
    "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=33, pipe_handle=35)", "--multiprocessing-fork",
]  # fmt: skip
SECRET = "s3cr3t-Zz91-value"


@pytest.fixture
def host(tmp_path: Path) -> FakeProc:
    fake = FakeProc(tmp_path)
    fake.add(1, ["/sbin/init"])
    return fake


def single(host: FakeProc, pid: int, port: int, net: str = "host", address: str = "127.0.0.1", *words: str) -> int:
    """One engine on one worker, as a real vLLM 0.32 has it."""
    host.add(pid, [*SERVE, "--port", str(port), *words], comm="vllm", sockets=[pid * 10], net=net)
    host.add(pid + 1, TRACKER, pid, comm="python", group=pid, net=net)
    host.add(pid + 2, "VLLM::EngineCore", pid, group=pid, net=net)
    host.add(pid + 3, "VLLM::Worker", pid + 2, group=pid, sockets=[pid * 10 + 1], net=net)
    host.listen(port, pid * 10, address, net)
    host.listen(34347, pid * 10 + 1, "127.0.0.1", net)  # gloo's, of the worker
    return pid


def roles(server: ServerProcess) -> dict[int, str]:
    return {member.pid: member.role for member in server.members}


def only(host: FakeProc) -> ServerProcess:
    found = find(host.kernel())
    assert len(found) == 1, found
    return found[0]


# ------------------------------------------------------------------ trees


def test_nobody(host: FakeProc) -> None:
    host.add(7, ["nginx: master process"])
    assert find(host.kernel()) == []


def test_one_engine(host: FakeProc) -> None:
    single(host, 100, 8010)
    found = only(host)
    assert found.root == 100
    assert roles(found) == {100: "api-server", 101: "other", 102: "engine-core", 103: "worker"}
    assert [member.name for member in found.members] == ["vllm", "python", "VLLM::EngineCore", "VLLM::Worker"]
    assert [member.started for member in found.members] == [10000, 10100, 10200, 10300]
    assert (found.url, found.ports) == ("http://127.0.0.1:8010", (8010,))
    assert found.command.model == found.model_path == "/models/tiny"
    assert found.apart == frozenset()
    assert found.user == "root"
    assert found.notes == ()


def data_parallel(host: FakeProc) -> None:
    """As `vllm serve --data-parallel-size 2 --api-server-count 2` of vLLM 0.32 looks."""
    words = ["--host", "127.0.0.1", "--port", "8010", "--data-parallel-size", "2", "--api-server-count", "2"]
    host.add(100, [*SERVE, *words], comm="vllm", sockets=[1])
    host.add(101, TRACKER, 100, comm="python", group=100)
    host.add(102, "VLLM::DPCoordinator", 100, group=100)
    host.add(103, "VLLM::EngineCore_DP0", 100, group=100)
    host.add(104, "VLLM::EngineCore_DP1", 100, group=100)
    host.add(105, "VLLM::APIServer_0", 100, group=100, sockets=[1])
    host.add(106, "VLLM::APIServer_1", 100, group=100, sockets=[1])
    host.add(107, "VLLM::Worker", 103, group=100)
    host.add(108, "VLLM::Worker", 104, group=100)
    host.add(109, ["g++", "/root/.cache/vllm/torch_compile_cache/x.cpp"], 107, group=100)
    host.add(110, ["/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus"], 109, group=100)


def test_two_engines_behind_two_api_servers(host: FakeProc) -> None:
    data_parallel(host)
    host.listen(8010, 1, "127.0.0.1")
    found = only(host)
    assert list(roles(found).values()) == [
        "launcher", "other", "coordinator", "engine-core", "engine-core", "api-server", "api-server",
        "worker", "worker", "other", "other",
    ]  # fmt: skip
    assert found.url == "http://127.0.0.1:8010"
    assert found.notes == ()


def test_a_server_that_is_starting(host: FakeProc) -> None:
    """Its launcher already listens, on a store that is not HTTP; its port comes last."""
    data_parallel(host)
    host.add(111, SPAWNED, 103, group=100)
    host.listen(35125, 1, "::")
    found = only(host)
    assert (found.url, found.ports) == ("http://127.0.0.1:8010", (35125,))
    assert found.notes == (
        "it does not listen on port 8010: is it still starting?",
        "1 of its processes have no title (starting, or no setproctitle): their roles are not known",
    )


def test_processes_forked_without_a_title(host: FakeProc) -> None:
    host.add(100, SERVE)
    host.add(101, SERVE, 100)
    found = only(host)
    assert roles(found) == {100: "api-server", 101: "other"}
    assert "have no title" in found.notes[-1]


def test_several_servers(host: FakeProc) -> None:
    host.add(50, ["/bin/sh", "-c", "vllm serve a & vllm serve b"])
    single(host, 100, 8001)
    single(host, 200, 8002)
    host.add(51, ["uv", "run", "vllm", "serve", "c"])
    host.add(300, SERVE, 51, sockets=[3000])
    host.listen(8000, 3000)
    assert [(server.root, server.url) for server in find(host.kernel())] == [
        (100, "http://127.0.0.1:8001"),
        (200, "http://127.0.0.1:8002"),
        (300, "http://127.0.0.1:8000"),
    ]
    assert of_pid(host.kernel(), 51).root == 300


@pytest.mark.parametrize(
    "argv",
    [
        ["sh", "-c", "vllm serve m"],
        ["docker", "run", "vllm/vllm-openai", "vllm", "serve", "m"],
        ["tail", "-f", "vllm.log"],
        ["vim", "vllm", "serve"],
        ["vllm", "bench", "serve"],
        ["/usr/bin/python3", "/usr/bin/vllm", "chat"],
        ["python -m vllm serve m"],  # one word: a title, and not vLLM's
        ["ray::RayWorkerWrapper.execute_method"],
        ["Sidekiq::Worker"],
    ],
)
def test_what_is_no_server(argv: list[str], host: FakeProc) -> None:
    host.add(7, argv)
    assert find(host.kernel()) == []
    with pytest.raises(SourceError, match=r"process 7 .*give (that pid|the pid of `vllm serve`)") as raised:
        of_pid(host.kernel(), 7)
    assert raised.value.kind == "not-vllm"


def test_a_title_of_another_prefix(host: FakeProc) -> None:
    host.add(100, SERVE)
    host.add(101, "blue::EngineCore", 100)
    host.add(102, "ray::EngineCore", 100)
    assert roles(only(host)) == {100: "api-server", 101: "engine-core", 102: "other"}


def test_workers_under_ray(host: FakeProc) -> None:
    host.add(100, [*SERVE, "--distributed-executor-backend", "ray"])
    host.add(200, "ray::RayWorkerWrapper")
    assert "Ray" in only(host).notes[-1]
    with pytest.raises(SourceError, match="is a process of Ray"):
        of_pid(host.kernel(), 200)


def test_a_headless_node(host: FakeProc) -> None:
    host.add(100, [*SERVE, "--headless", "-dp", "4"])
    host.add(101, "VLLM::EngineCore_DP2", 100)
    found = only(host)
    assert found.url is None
    assert found.notes == ("it is headless: another node has its API server",)
    assert roles(found) == {100: "launcher", 101: "engine-core"}


def test_an_application_with_vllm_inside(host: FakeProc) -> None:
    host.add(100, ["python3", "app.py", "--hf-token", SECRET], sockets=[5], group=100)
    host.add(101, "VLLM::EngineCore", 100, group=100)
    host.listen(9000, 5)
    found = only(host)
    assert (found.root, found.url) == (100, "http://127.0.0.1:9000")
    assert roles(found) == {100: "api-server", 101: "engine-core"}
    assert "a program of its own" in found.notes[0]
    assert SECRET not in repr(found)


def test_a_script_without_a_port_is_no_server_but_can_be_named(host: FakeProc) -> None:
    host.add(100, ["python3", "offline.py"], group=100)
    host.add(101, "VLLM::EngineCore", 100, group=100)
    assert find(host.kernel()) == []
    assert roles(of_pid(host.kernel(), 101)) == {100: "other", 101: "engine-core"}


def test_an_orphaned_engine(host: FakeProc) -> None:
    host.add(90, ["/usr/bin/python3", "/usr/bin/supervisord"])  # adopts orphans, and is a Python program
    host.add(101, "VLLM::EngineCore", 90, group=100)
    assert find(host.kernel()) == []
    found = of_pid(host.kernel(), 101)
    assert found.root == 101
    assert found.notes == (
        "VLLM::EngineCore (pid 101) is an orphan: the server that started it is gone, and its flags with it",
    )


def test_a_dead_engine_that_nobody_buried(host: FakeProc) -> None:
    single(host, 100, 8010)
    host.add(102, "VLLM::EngineCore", 100, group=100, state="Z")
    host.add(104, ["g++"], 100, state="Z")
    found = only(host)
    assert 102 not in roles(found)
    assert found.notes == ("VLLM::EngineCor (pid 102) has exited, and the server did not notice",)


# ------------------------------------------------------------------ by pid


@pytest.mark.parametrize("pid", [100, 101, 102, 103, 50, 30])
def test_any_pid_of_the_tree(pid: int, host: FakeProc) -> None:
    single(host, 100, 8010)
    host.add(50, ["nsys", "profile", "vllm", "serve"])
    host.add(100, [*SERVE, "--port", "8010"], 50)
    host.write("proc/30/status", "Name:\tZMQbg/IO/0\nTgid:\t102\n")  # a thread: not in the list, but it can be asked
    assert of_pid(host.kernel(), pid).root == 100


def test_a_pid_that_is_gone(host: FakeProc) -> None:
    with pytest.raises(SourceError, match="there is no process 4242; pgrep") as raised:
        of_pid(host.kernel(), 4242)
    assert raised.value.kind == "not-found"


def test_a_pid_that_has_ended(host: FakeProc) -> None:
    host.add(7, SERVE, comm="vllm", state="Z")
    with pytest.raises(SourceError, match=r"process 7 \(vllm\) has ended"):
        of_pid(host.kernel(), 7)
    assert find(host.kernel()) == []


def test_a_pid_of_two_servers(host: FakeProc) -> None:
    host.add(50, ["bash", "start-all.sh"])
    single(host, 100, 8001)
    single(host, 200, 8002)
    host.add(100, SERVE, 50)
    host.add(200, SERVE, 50)
    with pytest.raises(SourceError, match="runs 2 vLLM servers: give one of 100, 200"):
        of_pid(host.kernel(), 50)


def test_a_proc_that_hides_the_others(tmp_path: Path) -> None:
    kernel = FakeProc(tmp_path).kernel()
    assert find(kernel) == []
    assert listening_on(kernel, 8000) is None
    with pytest.raises(SourceError, match="or /proc hides it"):
        of_pid(kernel, 100)


def test_no_proc_at_all(tmp_path: Path) -> None:
    assert find(Kernel(tmp_path)) == []
    assert listening_on(Kernel(tmp_path), 8000) is None


def test_processes_that_end_while_read(host: FakeProc) -> None:
    single(host, 100, 8010)
    for pid, text in ((300, ""), (301, "301 (x"), (302, "302 (x) S a b c")):
        host.write(f"proc/{pid}/stat", text)
    (host.root / "proc/303").mkdir()
    (host.root / "proc/100/root").mkdir(exist_ok=True)
    assert only(host).root == 100


def test_parents_in_a_circle(host: FakeProc) -> None:
    host.add(100, SERVE, 101)
    host.add(101, "VLLM::EngineCore", 100)
    assert set(roles(only(host))) == {100, 101}


# ------------------------------------------------------------------ where it listens


@pytest.mark.parametrize(
    ("address", "words", "url"),
    [
        ("0.0.0.0", (), "http://127.0.0.1:8010"),
        ("::", (), "http://127.0.0.1:8010"),
        ("192.0.2.7", (), "http://192.0.2.7:8010"),
        ("2001:db8::7", (), "http://[2001:db8::7]:8010"),
        ("::ffff:192.0.2.7", (), "http://192.0.2.7:8010"),
        ("0.0.0.0", ("--ssl-certfile", "c.pem"), "https://127.0.0.1:8010"),
        ("0.0.0.0", ("--uds", "/run/vllm.sock"), "http://localhost"),
    ],
)
def test_the_url(address: str, words: tuple[str, ...], url: str | None, host: FakeProc) -> None:
    single(host, 100, 8010, "host", address, *words)
    assert only(host).url == url


def test_the_port_among_several(host: FakeProc) -> None:
    host.add(100, ["python3", "app.py"], group=100, sockets=[1, 2, 3])
    host.add(101, "VLLM::EngineCore", 100, group=100)
    for inode, port in ((1, 29500), (2, 8080)):
        host.listen(port, inode)
    assert only(host).url == "http://127.0.0.1:8080"
    host.listen(8000, 3)
    assert only(host).url == "http://127.0.0.1:8000"
    assert only(host).ports == (8000, 8080, 29500)


def test_a_port_that_only_an_unread_config_knows(host: FakeProc) -> None:
    host.add(100, [*SERVE, "--config", "gone.yaml"], sockets=[1], cwd="/srv")
    host.listen(8123, 1)
    assert only(host).url == "http://127.0.0.1:8123"
    assert "gone.yaml: not read (absent)" in only(host).notes[0]


def test_a_config_beside_the_server(host: FakeProc) -> None:
    files = {"srv/vllm.yaml": "port: 8123\nmax-num-seqs: 4\n"}
    host.add(100, [*SERVE, "--config", "vllm.yaml"], sockets=[1], cwd="/srv", files=files)
    host.listen(8123, 1)
    found = only(host)
    assert found.command.flags["--max-num-seqs"] == 4.0
    assert found.url == "http://127.0.0.1:8123"


TRIE = """Main:
  +-- 0.0.0.0/0 3 0 5
     +-- 127.0.0.0/8 2 0 2
           |-- 127.0.0.1
              /32 host LOCAL
        |-- 172.17.255.255
           /32 link BROADCAST
           |-- 172.17.0.2
              /32 host LOCAL
"""


def container(host: FakeProc, address: str) -> None:
    single(host, 100, 8000, "pod", address)
    host.write("proc/100/net/fib_trie", TRIE)


def test_a_container_in_a_network_of_its_own(host: FakeProc) -> None:
    container(host, "0.0.0.0")
    found = only(host)
    assert found.url == "http://172.17.0.2:8000"
    assert found.apart == frozenset({"net", "mnt", "pid"})
    assert listening_on(host.kernel(), 8000) is None


def test_a_container_that_listens_to_itself_only(host: FakeProc) -> None:
    container(host, "127.0.0.1")
    found = only(host)
    assert found.url is None
    where = "it listens on 127.0.0.1 in a network of its own"
    assert found.notes == (f"{where}: run vllm-doctor as root, or inside its container",)


def test_root_goes_into_a_network_of_its_own(host: FakeProc) -> None:
    container(host, "127.0.0.1")
    host.write("proc/self/status", "Name:\tpython\nCapEff:\t000001ffffffffff\n")
    found = only(host)
    assert found.url == "http://127.0.0.1:8000"
    assert found.route.name == "http://127.0.0.1:8000 in the network of pid 100"
    assert found.notes == ()


def test_a_network_whose_address_is_not_told(host: FakeProc) -> None:
    container(host, "0.0.0.0")
    (host.root / "proc/100/net/fib_trie").unlink()
    assert only(host).url is None


def test_who_listens(host: FakeProc) -> None:
    single(host, 100, 8010)
    container_pid = single(host, 200, 8000, "pod", "0.0.0.0")
    host.add(300, ["nginx: master process"], comm="nginx", sockets=[7])
    host.add(301, ["nginx: worker process"], 300, comm="nginx", sockets=[7])
    host.listen(8000, 7)
    host.listen(9000, 8)  # nobody's that can be seen
    kernel = host.kernel()
    assert listening_on(kernel, 8000) == Listener(300, "nginx")
    found = listening_on(kernel, 8010)
    assert isinstance(found, ServerProcess)
    assert found.root == 100
    assert listening_on(kernel, 9000) is None
    assert listening_on(kernel, 8123) is None
    assert container_pid in {server.root for server in find(kernel)}


# ------------------------------------------------------------------ what it was started with


ENVIRON = {
    "VLLM_USE_V1": "1",
    "VLLM_API_KEY": SECRET,
    "VLLM_PROXY": f"http://u:{SECRET}@proxy:3128",
    "HF_TOKEN": SECRET,
    "HUGGING_FACE_HUB_TOKEN": SECRET,
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "RAY_REDIS_PASSWORD": SECRET,
    "OTHER": SECRET,
    "HF_HOME": "/cache",
    "OMP_NUM_THREADS": "8",
    "TOKENIZERS_PARALLELISM": "false",
    "LD_PRELOAD": "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4:/opt/libiomp5.so",
    "CUDA_VISIBLE_DEVICES": "",
}
SHOWN = {
    "VLLM_USE_V1": "1",
    "VLLM_PROXY": "http://[masked]@proxy:3128",
    "HF_HOME": "/cache",
    "OMP_NUM_THREADS": "8",
    "TOKENIZERS_PARALLELISM": "false",
    "LD_PRELOAD": "libtcmalloc.so.4:libiomp5.so",
    "CUDA_VISIBLE_DEVICES": "",
}


def test_no_secret_is_kept(host: FakeProc) -> None:
    words = ["--api-key", SECRET, "--otlp-traces-endpoint", f"http://u:{SECRET}@h", "--config", "/c.yaml"]
    host.add(100, [*SERVE, *words], environ=ENVIRON, files={"c.yaml": f"hf-token: {SECRET}\n"})
    found = only(host)
    assert found.environ == SHOWN
    assert "--hf-token" in found.command.flags
    assert SECRET not in repr(found)


def test_an_environment_that_a_title_wrote_over(host: FakeProc) -> None:
    host.add(100, "VLLM::EngineCore")
    host.write("proc/100/environ", " " * 400)
    assert of_pid(host.kernel(), 100).environ is Reason.NOT_SUPPORTED


def test_an_environment_that_cannot_be_read(host: FakeProc) -> None:
    host.add(100, SERVE)
    (host.root / "proc/100/environ").unlink()
    (host.root / "proc/100/environ").mkdir()
    assert isinstance(only(host).environ, Reason)


@pytest.mark.parametrize(
    ("argv", "folder", "version"),
    [
        (SERVE, "opt/vllm/lib/python3.12/site-packages/vllm-0.11.0.dist-info", "0.11.0"),
        (["python3", "bin/vllm", "serve", "m"], "srv/lib/python3.11/site-packages/vllm-0.9.2.dist-info", "0.9.2"),
        (
            ["python3", "-m", "vllm.entrypoints.openai.api_server"],
            "usr/local/lib/python3.12/dist-packages/vllm-0.32.0+cu129.dist-info",
            "0.32.0+cu129",
        ),
        (SERVE, "opt/vllm/lib/python3.12/site-packages/vllm_flash_attn-2.0.dist-info", None),
        (SERVE, "elsewhere/vllm-0.11.0.dist-info", None),
    ],
)
def test_the_version(argv: list[str], folder: str, version: str | None, host: FakeProc) -> None:
    host.add(100, argv, cwd="/srv", files={f"{folder}/METADATA": ""})
    assert only(host).version == version


def test_two_versions_are_none(host: FakeProc) -> None:
    packages = "opt/vllm/lib/python3.12/site-packages"
    host.add(100, SERVE, files={f"{packages}/vllm-{v}.dist-info/METADATA": "" for v in ("0.10.0", "0.11.0")})
    assert only(host).version is None


def test_the_log(host: FakeProc, tmp_path: Path) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("INFO\n")
    host.add(100, SERVE)
    host.link("proc/100/fd/1", str(log))
    assert only(host).log == log
    for target in ("/dev/null", "pipe:[7]", f"{log} (deleted)", str(tmp_path / "gone")):
        host.link("proc/100/fd/1", target)
        assert only(host).log is None
    host.link("proc/100/fd/1", str(log))
    host.link("proc/100/ns/mnt", "mnt:[container]")
    assert only(host).log == tmp_path / f"proc/100/root{log}"


def test_the_user(host: FakeProc) -> None:
    host.add(100, SERVE, uid=1000)
    assert only(host).user == "alice"
    host.add(100, SERVE, uid=1234)
    assert only(host).user == "1234"


@pytest.mark.parametrize(
    ("model", "path"), [("/models/m", "/models/m"), ("m", "/srv/m"), ("./m/", "/srv/m"), ("org/m", None)]
)
def test_the_models_path(model: str, path: str | None, host: FakeProc) -> None:
    host.add(100, ["vllm", "serve", model], cwd="/srv", files={"srv/m/config.json": "{}"})
    assert only(host).model_path == path


def test_a_server_of_which_nothing_is_seen() -> None:
    assert ServerProcess.unseen().members == ()


# ------------------------------------------------------------------ real processes


SCRIPT = """
import http.server, sys
port = int(sys.argv[sys.argv.index("--port") + 1])
server = http.server.HTTPServer(("127.0.0.1", port), http.server.BaseHTTPRequestHandler)
print("up", flush=True)
server.serve_forever()
"""


@contextlib.contextmanager
def real_vllm(folder: Path) -> Iterator[tuple[int, int]]:
    """A process that looks like `vllm serve` to the kernel; gives its pid and port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    script = folder / "vllm"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), "serve", "org/m", "--port", str(port), "--api-key", SECRET]
    environ = {"VLLM_API_KEY": SECRET, "OMP_NUM_THREADS": "3"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            yield process.pid, port
        finally:
            process.send_signal(signal.SIGKILL)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.xdist_group("host")
def test_a_real_process(tmp_path: Path) -> None:
    with real_vllm(tmp_path) as (pid, port):
        kernel = Kernel()
        found = next(server for server in find(kernel) if server.root == pid)
        assert found.url == f"http://127.0.0.1:{port}"
        assert found.environ == {"OMP_NUM_THREADS": "3"}
        assert found.apart == frozenset()
        assert found.command.model == "org/m"
        assert SECRET not in repr(found)
        assert of_pid(kernel, pid).root == pid
        here = listening_on(kernel, port)
        assert isinstance(here, ServerProcess)
        assert here.root == pid


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="only root can become another user")
@pytest.mark.xdist_group("host")
def test_a_real_process_of_another_user(tmp_path: Path) -> None:
    with real_vllm(tmp_path) as (pid, port):
        os.seteuid(65534)
        try:
            found = of_pid(Kernel(), pid)
            here = listening_on(Kernel(), port)
        finally:
            os.seteuid(0)
    assert found.environ is Reason.DENIED
    assert found.apart is Reason.DENIED
    assert found.log is None
    assert found.version is None
    assert found.url == f"http://127.0.0.1:{port}"
    assert isinstance(here, ServerProcess)
    assert here.root == pid

"""The real command beside a real process tree: a program that is started, titled, and answers as a vLLM."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_main import SCHEMA, Ran, one_line, python
from tests.fake_nvml import environment
from tests.fake_nvml.scenarios import GIB
from tests.making import shipped_catalogue, shipped_rules
from tests.paths import NVIDIA_SMI
from tests.serving import pages
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.session import attach, watch
from vllm_doctor.session.attachment import Attachment
from vllm_doctor.session.view_model import ViewModel
from vllm_doctor.sources.server.access import Access

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="needs /proc"),
    pytest.mark.xdist_group("host"),  # its servers are seen by all who look at this host
]

SECRETS = [f"S3CRET-{number}-0123456789abcdef" for number in range(6)]
ORIGINS = set(SCHEMA["$defs"]["finding"]["properties"]["evidence"]["items"]["properties"]["from"]["enum"])

# Beside its script lie the pages, one for each request; it has the socket that listens from its parent.
VLLM = """\
import http.server, json, pathlib, socket, subprocess, sys

here = pathlib.Path(__file__).parent
pages = sorted(here.glob("*.page"))
asked = 0
CORE = '''
import subprocess, sys
command = ["VLLM::Worker", "-c", "import sys; sys.stdin.read()"]
worker = subprocess.Popen(command, executable=sys.argv[1], stdin=subprocess.PIPE)
print(worker.pid, flush=True)
sys.stdin.read()
'''

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global asked
        with (here / "requests").open("a") as log:
            print(self.path, self.headers, file=log)
        kind = "application/json"
        if self.path == "/version":
            body = json.dumps({"version": "0.32.0"}).encode()
        elif self.path == "/v1/models":
            card = {"id": "tiny", "owned_by": "vllm", "max_model_len": 2048}
            body = json.dumps({"object": "list", "data": [card]}).encode()
        else:
            kind = "text/plain"
            body = pages[min(asked, len(pages) - 1)].read_bytes()
            asked += 1
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

class Server(http.server.ThreadingHTTPServer):
    def __init__(self, inherited):
        super().__init__(("127.0.0.1", 0), Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = inherited

core = subprocess.Popen(
    ["VLLM::EngineCore", "-c", CORE, sys.executable], executable=sys.executable,
    stdin=subprocess.PIPE, stdout=subprocess.PIPE,
)
server = Server(socket.socket(fileno=0))
print(core.pid, core.stdout.readline().decode().strip(), flush=True)
server.serve_forever()
"""


@dataclass(frozen=True)
class Fake:
    url: str
    pid: int
    core: int
    worker: int
    requests: Path
    """What it was asked, with the headers."""


@contextlib.contextmanager
def fake_vllm(
    folder: Path, *words: str, name: str = "healthy-busy", env: Mapping[str, str] | None = None
) -> Iterator[Fake]:
    """`python …/vllm serve tiny --port N …`, with an engine core and a worker below it."""
    script = folder / "vllm"
    script.write_text(VLLM, "utf-8")
    for number, page in enumerate(pages(name, 8)):
        (folder / f"{number}.page").write_text(page, "utf-8")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        command = [sys.executable, "-S", str(script), "serve", "tiny", "--port", str(port), *words]
        process = subprocess.Popen(
            command, stdin=listener.fileno(), stdout=subprocess.PIPE, text=True, env=os.environ | dict(env or {})
        )
    try:
        assert process.stdout is not None
        core, worker = map(int, process.stdout.readline().split())  # the others stand when it has said so
        yield Fake(f"http://127.0.0.1:{port}", process.pid, core, worker, folder / "requests")
    finally:
        process.kill()
        process.communicate()


def doctor(*arguments: str, env: Mapping[str, str] | None = None) -> Ran:
    """The command in a process of its own; without GPUs, if `env` does not give some."""
    environ = environment("no-library") if env is None else dict(env)
    ran = python("-m", "vllm_doctor", "--timeout", "60", *arguments, env=environ)
    assert "Traceback" not in ran.stdout + ran.stderr
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def gpus(scenario: str, fake: Fake, more: str = "") -> dict[str, str]:
    """The GPUs of a scenario, with the server's engine core on the first."""
    return environment(scenario, f"{more}\ngpu/0/ComputeRunningProcesses {fake.core}:{20 * GIB}")


def by_rule(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {finding["rule"]: finding for finding in report["findings"]}


# How it is found


@pytest.mark.parametrize("way", ["pid", "worker", "url", "localhost"])
def test_a_server_by_its_pid_and_by_its_url(way: str, tmp_path: Path) -> None:
    with fake_vllm(tmp_path, "--max-num-seqs", "64") as fake:
        word = {
            "pid": str(fake.pid),
            "worker": str(fake.worker),
            "url": fake.url,
            "localhost": fake.url.replace("127.0.0.1", "localhost"),
        }[way]
        ran = doctor(word, "--json", "--window", "0.2")
    report = ran.report
    assert ran.err == ""
    assert [source["kind"] for source in report["sources"]] == ["server", "host", "gpu"]
    assert [source["target"] for source in report["sources"][1:]] == [f"pid {fake.pid}", "NVIDIA driver"]
    assert report["sources"][0]["scrapes"] == 2
    assert report["patient"]["processes"] == [
        {"role": "api-server", "pid": fake.pid},
        {"role": "engine-core", "pid": fake.core},
        {"role": "worker", "pid": fake.worker},
    ]
    assert report["patient"]["cores"]["wanted"] == 3
    assert report["patient"]["cores"]["usable"] > 0
    assert report["patient"]["cores"]["terms"] == "1 API server + 1 engine core + 1 worker"
    assert (report["patient"]["vllm"], report["patient"]["model"]) == ("0.32.0", "tiny")
    assert report["command"]["was"][2:5] == [str(tmp_path / "vllm"), "serve", "tiny"]
    assert report["command"]["was"][-2:] == ["--max-num-seqs", "64"]
    assert report["rules"]["cpu-underprovisioned"] != "unknown"
    told = {evidence["from"] for finding in report["findings"] for evidence in finding["evidence"]}
    assert told <= ORIGINS


def test_every_server_of_this_host(tmp_path: Path) -> None:
    """There may be others, and well or ill: this one is among them."""
    with fake_vllm(tmp_path) as fake:
        report = doctor("--json", "--window", "0.2", "--rule", "preemption").report
    targets = [source["target"] for source in report["sources"]]
    assert fake.url in targets
    assert f"pid {fake.pid}" in targets
    assert {"role": "engine-core", "pid": fake.core} in report["patient"]["processes"]


def test_the_text(tmp_path: Path) -> None:
    with fake_vllm(tmp_path, "--max-num-seqs", "64", name="preemption") as fake:
        ran = doctor(str(fake.core), "--window", "0.2")
    flat = " ".join(ran.out.split())
    assert ran.out.startswith("CRITICAL  ")
    assert f"{fake.url} · pids: api-server {fake.pid} engine-core {fake.core} worker {fake.worker}" in flat
    assert re.search(r"cores: [\d.]+ usable, 3 wanted \(1 API server \+ 1 engine core \+ 1 worker\)", flat)
    assert "serve tiny --port" in flat
    assert "run vllm-doctor on its host" not in flat
    assert max(map(len, ran.out.splitlines())) <= 80


def test_what_a_flag_was_and_what_it_should_be(tmp_path: Path) -> None:
    with fake_vllm(tmp_path, "--max-num-seqs", "64", "--num-gpu-blocks-override", "80", name="preemption") as fake:
        report = doctor(str(fake.pid), "--json", "--window", "0.2").report
    remedies = [remedy for remedy in by_rule(report)["preemption"]["remedies"] if "--max-num-seqs" in remedy["set"]]
    assert remedies
    assert remedies[0]["was"] == {"--max-num-seqs": 64}
    assert remedies[0]["set"]["--max-num-seqs"] < 64


# Secrets


@pytest.mark.parametrize("form", FORMATS)
def test_no_secret_leaves(form: str, tmp_path: Path) -> None:
    words = ["--api-key", SECRETS[0], SECRETS[1], "--hf-token", SECRETS[2]]
    names = ("HF_TOKEN", "VLLM_API_KEY", "OPENAI_API_KEY")
    env = dict(zip(names, SECRETS[3:], strict=True)) | {"OMP_NUM_THREADS": "8"}
    with fake_vllm(tmp_path, *words, name="preemption", env=env) as fake:
        ran = doctor(str(fake.pid), "--window", "0", "--format", form)
    assert ran.out or form == "patch"  # nothing is measured, so nothing is to be changed
    assert not [secret for secret in SECRETS if secret in ran.out + ran.err]
    if form == "json":
        assert "--api-key" in ran.report["command"]["was"]
        assert "[masked]" in ran.report["command"]["was"]


# GPUs


def test_gpus_that_are_slowed_down(tmp_path: Path) -> None:
    with fake_vllm(tmp_path, "-tp", "3") as fake:
        rows = "\n".join(
            f"gpu/{i}/ComputeRunningProcesses {pid}:{GIB}" for i, pid in ((1, fake.core), (2, fake.worker))
        )
        ran = doctor(str(fake.pid), "--json", "--window", "0.2", env=gpus("throttled", fake, rows))
    report, found = ran.report, by_rule(ran.report)
    assert ran.code == 2
    assert report["patient"]["gpus"] == 3
    assert report["patient"]["gpu"] == "NVIDIA H100 80GB HBM3"
    assert (found["gpu-thermal-throttled"]["severity"], found["gpu-power-capped"]["severity"]) == (
        "critical",
        "warning",
    )
    for rule in ("gpu-thermal-throttled", "gpu-power-capped", "gpu-hw-slowdown"):
        assert {evidence["from"] for evidence in found[rule]["evidence"]} == {"nvml"}
    assert "GPU 0" in found["gpu-thermal-throttled"]["here"]
    assert found["gpu-power-capped"]["remedies"][0]["run"] == ["nvidia-smi -pl 700"]
    assert found["gpu-power-capped"]["remedies"][0]["by"] == "administrator"


def test_a_gpu_that_falls_off_the_bus_is_not_ok(tmp_path: Path) -> None:
    with fake_vllm(tmp_path) as fake:
        ran = doctor(fake.url, "--json", "--window", "1", env=gpus("lost", fake))
    finding = by_rule(ran.report)["gpu-unhealthy"]
    assert (ran.code, finding["severity"]) == (2, "critical")
    assert "GPU 3" in finding["here"]


def test_a_gpu_that_somebody_else_uses(tmp_path: Path) -> None:
    with fake_vllm(tmp_path) as fake:
        more = f"gpu/0/ComputeRunningProcesses {fake.core}:{8 * GIB} 5000:{12 * GIB}"
        report = doctor(fake.url, "--json", "--window", "0", env=gpus("shared", fake, more)).report
    finding = by_rule(report)["gpu-shared"]
    assert "pid 5000" in finding["here"]
    assert finding["evidence"][0]["from"] == "nvml"
    assert "secret" not in str(report)


def test_tensor_parallelism_over_pcie(tmp_path: Path) -> None:
    with fake_vllm(tmp_path, "-tp", "2") as fake:
        more = f"gpu/1/ComputeRunningProcesses {fake.worker}:{38 * GIB}"
        report = doctor(str(fake.pid), "--json", "--window", "0", env=gpus("l40s-pair", fake, more)).report
    finding = by_rule(report)["pcie-no-nvlink"]
    assert finding["severity"] == "info"
    assert [(evidence["signal"], evidence["from"]) for evidence in finding["evidence"]] == [("nvlink", "nvml")]
    # A pipeline needs requests for its stages, and none runs.
    assert not any("--pipeline-parallel-size" in remedy["set"] for remedy in finding["remedies"])


def model_1b(folder: Path) -> Mapping[str, str]:
    """Llama 3.2 1B in a Hugging Face cache, with weights that are all hole."""
    snapshot = folder / "models--tiny" / "snapshots" / "a"
    snapshot.mkdir(parents=True)
    config = {
        "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 8192, "vocab_size": 128256, "tie_word_embeddings": True,
    }  # fmt: skip
    (snapshot / "config.json").write_text(json.dumps(config))
    with (snapshot / "model.safetensors").open("wb") as file:
        file.truncate(2_471_000_000)
    return {"HF_HUB_CACHE": str(folder)}


def test_how_near_the_hardware_is(tmp_path: Path) -> None:
    with fake_vllm(tmp_path, env=model_1b(tmp_path / "hub")) as fake:
        seen = doctor(str(fake.pid), "--json", "--window", "0.2", env=gpus("a10g", fake)).report
        told = doctor(str(fake.pid), "--window", "0.2", env=gpus("a10g", fake)).out
    # 2.47 GB at 600 GB/s take 4.1 ms. The pages come faster than they were recorded, so rates are too high.
    assert 0.3 < seen["vitals"]["decode_of_bound"] < 1.1
    assert re.search(r"decode at \d+ % of the GPUs' memory-bandwidth bound", " ".join(told.split()))


def test_without_the_files_of_the_model_the_bound_is_not_told(tmp_path: Path) -> None:
    with fake_vllm(tmp_path, env={"HF_HUB_CACHE": str(tmp_path)}) as fake:
        seen = doctor(str(fake.pid), "--json", "--window", "0.2", env=gpus("a10g", fake)).report
    assert (seen["vitals"]["decode_of_bound"], seen["vitals"]["compute_of_bound"]) == (None, None)
    assert {"decode_of_bound", "compute_of_bound"} <= seen["vitals_unknown"].keys()


def test_a_driver_that_does_not_answer_is_not_seen_and_no_fault(tmp_path: Path) -> None:
    rules = ("--rule", "gpu-thermal-throttled", "--rule", "gpu-shared", "--rule", "preemption")
    with fake_vllm(tmp_path) as fake:
        ran = doctor(str(fake.pid), "--json", "--window", "0.2", *rules, env=gpus("driver-mismatch", fake))
    report = ran.report
    assert (ran.code, ran.err, report["verdict"], report["error"]) == (0, "", "ok", None)
    because = {unknown["rule"]: set(unknown["because"].values()) for unknown in report["unknown"]}
    assert because["gpu-thermal-throttled"] == because["gpu-shared"] == {"no-driver"}
    assert report["patient"]["gpus"] is None
    assert report["sources"][2]["error"] is None
    assert report["sources"][2]["notes"]


def test_gpus_from_a_file(tmp_path: Path) -> None:
    smi = NVIDIA_SMI / "h100-driver-550.xml"
    with fake_vllm(tmp_path) as fake:
        ran = doctor(str(fake.pid), "--json", "--window", "0", "--nvidia-smi", str(smi), env=gpus("throttled", fake))
    assert ran.report["sources"][2]["target"] == str(smi)
    assert "gpu-thermal-throttled" not in by_rule(ran.report)


# What is no server


def test_a_process_that_is_no_vllm() -> None:
    ran = doctor(str(os.getpid()), "--json")
    assert f"process {os.getpid()}" in one_line(ran)
    assert ran.report["error"]["kind"] == "not-vllm"
    assert doctor(str(os.getpid())).out == ""


def test_a_process_that_there_is_not() -> None:
    ran = doctor("4194305000", "--json")
    assert "there is no process 4194305000" in one_line(ran)
    assert ran.report["error"]["kind"] == "not-found"


def test_a_process_that_has_ended_and_waits_for_its_parent() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", ""]) as zombie:
        os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
        ran = doctor(str(zombie.pid), "--json")
    assert "has ended" in one_line(ran)
    assert ran.report["error"]["kind"] == "not-found"


def test_a_server_that_does_not_answer_but_whose_host_is_seen(tmp_path: Path) -> None:
    """Its API server is stopped: /metrics hangs, and what its host tells is told all the same."""
    import signal

    with fake_vllm(tmp_path, "--max-num-seqs", "64") as fake:
        os.kill(fake.pid, signal.SIGSTOP)
        ran = doctor(str(fake.pid), "--json", "--window", "0.2", "--timeout", "2")
    report = ran.report
    assert ran.code == 2
    assert report["findings"][0]["rule"] == "process-stopped"
    assert report["error"]["kind"] == "timeout"
    assert report["patient"]["processes"][0] == {"role": "api-server", "pid": fake.pid}
    assert report["command"]["was"][-2:] == ["--max-num-seqs", "64"]
    assert report["sources"][1]["error"] is None
    assert ran.err.count("\n") == 1


# ---- at a terminal --------------------------------------------------------------------------------------------------


def test_the_servers_of_this_host_can_be_chosen_from(tmp_path: Path) -> None:
    with fake_vllm(tmp_path, "--api-key", SECRETS[0]) as server:
        found = [choice for choice in attach.choices() if choice.sources == (str(server.pid),)]
    (choice,) = found
    assert choice.name == "tiny"
    assert server.url.removeprefix("http://") in choice.details
    assert f"pid {server.pid}" in choice.details
    assert SECRETS[0] not in repr(choice)


def test_a_server_of_this_host_is_watched_with_its_processes(tmp_path: Path) -> None:
    signals = shipped_catalogue()
    judge = watch.Judge(shipped_rules(), signals, {"goal": "throughput"})
    look = Attachment(signals.metrics, Access(), 3.0, 0.0)
    told: list[ViewModel] = []
    with fake_vllm(tmp_path, "--max-num-seqs", "64") as server:
        made = watch.Watch(lambda opened: attach.attach([str(server.pid)], look, opened), judge)

        def tell(view_model: ViewModel) -> None:
            told.append(view_model)
            if view_model.report is not None and view_model.processes and view_model.limits:
                made.control.stop()

        made.run(tell)
    assert {row.pid for row in told[-1].processes} == {server.pid, server.core, server.worker}
    assert told[-1].limits["max_num_seqs"] == 64
    report = told[-1].report
    assert report is not None
    assert {"server", "host"} <= {source.kind for source in report.sources}

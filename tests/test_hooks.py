"""docs/hooks.md: each recipe's commands run as they stand, against a recorded server over HTTP; and --state."""

from __future__ import annotations

import configparser
import contextlib
import http.server
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import threading
import tomllib
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.paths import ROOT
from tests.programs import needed
from tests.real_prometheus import until
from tests.serving import Served, serving, vllm
from vllm_doctor.cli import main
from vllm_doctor.recording import demo

pytestmark = pytest.mark.xdist_group("host")
GUIDE = (ROOT / "docs/hooks.md").read_text("utf-8")
RECIPES = {part.split("\n", 1)[0]: part for part in GUIDE.partition("\n## The recipes\n")[2].split("\n## ")[1:]}
PERFDATA = re.compile(r"'[a-z_]+'=-?[0-9.]+s?;[0-9.]*;;0")
CHECK_NRPE = "/usr/lib/nagios/plugins/check_nrpe"
NRPE = "/usr/sbin/nrpe"
LOCAL = re.compile(r'[0-3] "[^"]+" (-|[a-z_0-9]+=[0-9.]+(\|[a-z_0-9]+=[0-9.]+)*) \S.*')


def blocks(recipe: str, kind: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", RECIPES[recipe], re.DOTALL | re.MULTILINE)
    return [text for named, text in found if named == kind]


@pytest.fixture
def sick() -> Iterator[Served]:
    """From look to look pass ten recorded seconds; after its end the recording goes on from its begin."""
    recorded = demo.find("preemption")
    with serving(vllm(lambda request: demo.round_at(recorded, 10.0 * request.number))) as served:
        yield served


class Host:
    """A folder that stands for a host: the doctor on its PATH, and the folders that the recipes write to."""

    def __init__(self, root: Path, served: Served) -> None:
        self.root, self.served = root, served
        (root / "bin").mkdir()
        doctor = root / "bin" / "vllm-doctor"
        doctor.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m vllm_doctor "$@"\n')
        doctor.chmod(0o755)
        folders = "nagios", "check_mk_agent", "vllm-doctor", "prometheus/node-exporter", "telegraf"
        for folder in folders:
            (root / "var/lib" / folder).mkdir(parents=True)
        self.environment = os.environ | {
            "PATH": f"{root / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
        }

    def here(self, text: str) -> str:
        """A recipe's text, with this host's folders, and a window that a test can wait for."""
        text = re.sub(r"http://(127\.0\.0\.1|vllm|\$address\$):8000", self.served.url, text)
        text = re.sub(r"(?<!\w)/var/lib/", f"{self.root}/var/lib/", text)
        text = re.sub(r"(?<!\w)/usr/local/bin/", f"{self.root}/bin/", text)
        text = re.sub(r"--window (20|10)|--window, \"10\"", lambda m: m[0].replace(m[1] or "10", "1"), text)
        return text.replace("/tmp/vllm.state", f"{self.root}/vllm.state")

    def run(self, script: str, **more: str) -> subprocess.CompletedProcess[str]:
        """A script of a recipe; the first look, which watches, is made shorter, and a busy machine given time."""
        script = self.here(script).replace(" --timeout 20", "")
        hurried = "--timeout 200" if "--window" in script else "--window 1 --timeout 200"
        script = re.sub(r"vllm-doctor http\S+", rf"\g<0> {hurried}", script)
        return subprocess.run(
            ["sh", "-c", script], capture_output=True, text=True, timeout=300, cwd=self.root,
            env=self.environment | more,
        )  # fmt: skip


@pytest.fixture
def host(tmp_path: Path, sick: Served) -> Host:
    return Host(tmp_path, sick)


def is_nagios(out: str) -> None:
    assert out.count("\n") == 1
    assert out.isascii()
    text, _, perfdata = out.rstrip("\n").partition(" | ")
    assert text.startswith("VLLM CRITICAL - preemption: ")
    assert "|" not in text
    assert all(PERFDATA.fullmatch(item) for item in perfdata.split())


def test_nagios(host: Host) -> None:
    script, _ = blocks("Nagios and Icinga", "sh")
    done = host.run(script)
    assert done.returncode == 2
    is_nagios(done.stdout)
    nrpe, icinga = blocks("Nagios and Icinga", "")
    command = nrpe.split("]=")[1].strip()
    assert shlex.split(command)[1:] == shlex.split(script.splitlines()[1])[1:]
    (words,) = re.findall(r"command = \[ (.*) \]", icinga)
    assert [json.loads(word) for word in words.split(", ")][2:] == shlex.split(command)[2:]


@contextlib.contextmanager
def nrpe(folder: Path, command: str) -> Iterator[int]:
    """NRPE with this command in its configuration, as inetd starts it for each question; gives its port."""
    daemon = needed("nagios-nrpe-server", NRPE)
    config = folder / "nrpe.cfg"
    config.write_text(f"{command}\nnrpe_user=nobody\nnrpe_group=nogroup\n")
    # It refuses to be root: then it is nobody, in a name space in which the tests' own files are nobody's.
    as_nobody = ["unshare", "--user", "--map-user=65534", "--map-group=65534"] if os.geteuid() == 0 else []
    if as_nobody and subprocess.run([*as_nobody, "true"], capture_output=True).returncode:
        pytest.skip("NRPE refuses to be root, and no user name space can be made here (a chroot, a container)")

    def answer(asked: socket.socket) -> None:
        with contextlib.suppress(OSError):  # closed: the test is at its end
            while True:
                one, _ = asked.accept()
                with one:
                    own = one.fileno()
                    subprocess.run([*as_nobody, daemon, "-c", str(config), "-i"], stdin=own, stdout=own, check=False)

    with socket.create_server(("127.0.0.1", 0)) as asked:
        threading.Thread(target=answer, args=[asked], daemon=True).start()
        yield asked.getsockname()[1]
        asked.shutdown(socket.SHUT_RDWR)


def test_nrpe(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line and the exit code come through the daemon and its client."""
    for name, value in host.environment.items():
        monkeypatch.setenv(name, value)
    recipe = host.here(blocks("Nagios and Icinga", "")[0]).replace("--timeout 20", "--window 1 --timeout 200")
    asked, told = blocks("Nagios and Icinga", "sh")[1].splitlines()[1].split(" -H gpu-host ")
    assert Path(CHECK_NRPE).name == asked
    with nrpe(host.root, recipe) as port:
        client = [needed("nagios-nrpe-plugin", CHECK_NRPE), "-H", "127.0.0.1", "-p", str(port), *shlex.split(told)]
        client[-1] = "300"
        done = subprocess.run(client, capture_output=True, text=True, timeout=300)
        unknown = subprocess.run([*client[:5], "-c", "another"], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (2, "")
    is_nagios(done.stdout)
    assert (unknown.returncode, "not defined" in unknown.stdout) == (3, True)


def test_checkmk(host: Host) -> None:
    done = host.run(blocks("Checkmk", "sh")[0])
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[0].startswith('2 "vLLM" ')
    assert all(LOCAL.fullmatch(line) for line in lines)
    assert len({line.split('"')[1] for line in lines}) == len(lines)


def test_node_exporter(host: Host) -> None:
    done = host.run(blocks("node_exporter", "sh")[0])
    assert (done.returncode, done.stdout) == (2, "")
    page = (host.root / "var/lib/prometheus/node-exporter/vllm_doctor.prom").read_text("utf-8")
    found = {
        (sample.name, sample.labels.get("verdict")): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert found["vllm_doctor_verdict", "critical"] == 1.0
    promtool = [needed("prometheus", "promtool"), "check", "metrics"]
    checked = subprocess.run(promtool, input=page, capture_output=True, text=True)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    for metric in re.findall(r"`.*?(vllm_doctor_\w+)", RECIPES["node_exporter"]):
        assert metric in page


def test_node_exporter_itself(host: Host) -> None:
    """The real one reads the file, and each of its samples stands on its page."""
    folder = host.root / "var/lib/prometheus/node-exporter"
    assert host.run(blocks("node_exporter", "sh")[0]).returncode == 2
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    exporter = needed("prometheus-node-exporter", "prometheus-node-exporter")
    command = [exporter, "--collector.disable-defaults", "--collector.textfile"]
    command += [f"--collector.textfile.directory={folder}", f"--web.listen-address=127.0.0.1:{port}"]
    pages: list[str] = []

    def answers() -> bool:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as page:
            pages.append(page.read().decode())
        return bool(pages) or process.poll() is not None

    with (host.root / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        until(answers)
    finally:
        process.terminate()
        process.wait(60)
    assert pages, (host.root / "log").read_text()
    shown = samples(pages[0])
    assert shown["node_textfile_scrape_error", ()] == 0.0
    ours = samples((folder / "vllm_doctor.prom").read_text("utf-8"))
    assert len(ours) > 10
    assert {name: shown.get(name) for name in ours} == ours


def samples(page: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_systemd(host: Host) -> None:
    service, timer = (host.here(block) for block in blocks("systemd timer", "ini"))
    (host.root / "vllm-doctor.service").write_text(service)
    (host.root / "vllm-doctor.timer").write_text(timer)
    units = [str(host.root / f"vllm-doctor.{kind}") for kind in ("service", "timer")]
    checked = subprocess.run([needed("systemd", "systemd-analyze"), "verify", *units], capture_output=True, text=True)
    ours = [line for line in checked.stderr.splitlines() if "vllm-doctor" in line]
    assert (checked.returncode, ours) == (0, [])
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(service)
    done = host.run(unit["Service"]["ExecStart"])
    assert done.returncode == 2
    is_nagios(done.stdout)


def test_telegraf(host: Host) -> None:
    (told,) = tomllib.loads(host.here(blocks("Telegraf", "toml")[0]))["inputs"]["exec"]
    assert told["data_format"] == "nagios"
    is_nagios(host.run(told["commands"][0]).stdout)


def test_kubernetes(host: Host) -> None:
    (cronjob,) = (yaml.safe_load(host.here(block)) for block in blocks("Kubernetes", "yaml"))
    (job,) = cronjob["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert host.run(shlex.join(job["command"])).returncode == 2


def test_the_sidecar_of_deploy(host: Host) -> None:
    deployment = yaml.safe_load(host.here((ROOT / "deploy" / "sidecar.yaml").read_text("utf-8")))
    _, side = deployment["spec"]["template"]["spec"]["containers"]
    shell, flag, script = side["command"]
    assert (shell, flag) == ("sh", "-c")
    is_nagios(host.run(script.replace("sleep 60", "break")).stdout)


def test_slack(host: Host) -> None:
    needed("curl")
    got: list[bytes] = []

    class Slack(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    (script,) = blocks("Slack", "sh")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Slack) as slack:
        threading.Thread(target=slack.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{slack.server_address[1]}/hook"
        first, second = (host.run(script, SLACK_WEBHOOK=address) for _ in range(2))
        slack.shutdown()
    assert (first.returncode, second.returncode) == (0, 0), first.stderr
    (message,) = map(json.loads, got)
    assert message["text"].startswith("VLLM CRITICAL - preemption: ")
    assert "&gt; " in message["text"]  # as Slack wants a ">"


def test_github(host: Host) -> None:
    text = host.here(blocks("GitHub Actions", "yaml")[0])
    steps = yaml.safe_load(text)["jobs"]["doctor"]["steps"]
    look, compare, tell = (step["run"] for step in steps if "run" in step)
    assert host.run(look).returncode == 2  # the recorded server is critically ill
    shutil.copy(host.root / "now.json", host.root / "baseline.json")
    done = host.run(compare)
    assert (done.returncode, done.stdout[:12]) == (3, "INCONCLUSIVE")
    summary = host.root / "summary.md"
    assert host.run(tell, GITHUB_STEP_SUMMARY=str(summary)).returncode == 0
    assert summary.read_text("utf-8").startswith("## CRITICAL")


def test_each_recipe_says_what_was_not_run() -> None:
    for name, recipe in RECIPES.items():
        assert "*Not run*: " in recipe, name
        assert f"def test_{name.split()[0].lower()}(" in Path(__file__).read_text("utf-8")


# --state, by the command line


@pytest.fixture
def hook(sick: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """A run of a hook, whose last one was some seconds ago; its report, and how often the server was asked."""
    path = tmp_path / "state"

    def hook(since: float = 60.0, *more: str, url: str = sick.url) -> tuple[int, Any, int]:
        if path.exists():
            first, _, body = path.read_text("utf-8").partition("\n")
            told = json.loads(body)
            for one in (one for kept in told["servers"].values() for one in kept):
                one["at"] -= since
                one["clock"] -= since
            path.write_text(f"{first}\n{json.dumps(told)}\n", "utf-8")
        before = len(sick.asked("/metrics"))
        code = main.main([url, "--json", "--state", str(path), *more])
        return code, json.loads(capsys.readouterr().out), len(sick.asked("/metrics")) - before

    return hook


def server_of(report: Mapping[str, Any]) -> Any:
    (server,) = (source for source in report["sources"] if source["kind"] == "server")
    return server


def test_the_second_hook_answers_at_once_with_rates(hook: Callable[..., Any]) -> None:
    code, first, asked = hook(0.0, "--window", "0")
    assert (code in (1, 3), asked) == (True, 1)
    assert first["vitals_unknown"]["generation_tokens_per_second"] == "first-scrape"
    code, second, asked = hook()
    assert (code, asked, server_of(second)["scrapes"]) == (2, 1, 2)
    assert 59 < server_of(second)["window_s"] < 90
    assert second["vitals"]["generation_tokens_per_second"] > 0
    assert "preemption" in {finding["rule"] for finding in second["findings"]}


def test_the_first_hook_watches_for_a_second(hook: Callable[..., Any], hurried: None) -> None:
    code, report, asked = hook(0.0)
    assert (code, asked) == (2, 2)
    assert any("the first sample" in note for note in server_of(report)["notes"])


def test_a_stale_state_is_watched_anew_or_said_so(hook: Callable[..., Any], hurried: None) -> None:
    hook(0.0, "--window", "0")
    _, report, asked = hook(10_000.0, "--window", "0")
    assert (asked, report["vitals_unknown"]["generation_tokens_per_second"]) == (1, "stale")
    assert any("old (stale)" in note for note in server_of(report)["notes"])
    _, report, asked = hook(10_000.0, "--window", "3")
    assert asked == 4


def test_a_failed_look_keeps_what_was_known(hook: Callable[..., Any], tmp_path: Path) -> None:
    hook(0.0, "--window", "0")
    before = (tmp_path / "state").read_text("utf-8")
    code, report, _ = hook(0.0, url="http://127.0.0.1:1")
    assert (code, report["error"]["kind"]) == (3, "unreachable")
    assert json.loads((tmp_path / "state").read_text("utf-8").partition("\n")[2]) == json.loads(
        before.partition("\n")[2]
    )


@pytest.mark.parametrize("path", ["/no/such/folder/state", "/dev/null", "/proc/1/status", "/"])
def test_where_nothing_can_be_kept_one_line_says_so(
    path: str, sick: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main([sick.url, "--state", path]) == 3
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err.startswith(f"vllm-doctor: --state {path}: ")) == ("", 1, True)


def test_a_log_is_not_taken_for_a_state(sick: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "vllm.log"
    log.write_text("INFO 11-20 10:15:00 hello\n")
    assert main.main([sick.url, "--state", str(log)]) == 3
    assert "so it is not overwritten" in capsys.readouterr().err
    assert log.read_text() == "INFO 11-20 10:15:00 hello\n"

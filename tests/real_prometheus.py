"""For the tests: a real Prometheus, and a real VictoriaMetrics, of Debian's packages, on a free loopback port.

Each has storage of its own. `backfilled` gives it recordings as if it had scraped them, at their own times; `scraping`
lets it scrape servers that replay them, once a second.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from tests.making import shipped_catalogue
from tests.programs import needed
from tests.serving import Answer, Request, Route, recording, serving

Target = Mapping[str, str]
END = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
"""When the last backfilled scrape was."""
_PATIENCE = 240.0
_LINE = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$")


def command(name: str) -> str:
    """The program's path."""
    return needed("prometheus" if name == "promtool" else name, name)


@dataclass(frozen=True)
class Program:
    """What speaks Prometheus's API. `options`: its command line, of which {folder} and {port} are filled in."""

    command: str
    ready: str
    options: tuple[str, ...]

    def __str__(self) -> str:
        return self.command


PROMETHEUS = Program(
    "prometheus",
    "/-/ready",
    (
        "--config.file={folder}/prometheus.yml",
        "--storage.tsdb.path={folder}/data",
        "--storage.tsdb.retention.time=100y",
        "--web.listen-address=127.0.0.1:{port}",
    ),
)
VICTORIA = Program(
    "victoria-metrics",
    "/health",
    (
        "-promscrape.config={folder}/prometheus.yml",
        "-storageDataPath={folder}/data",
        "-retentionPeriod=100y",
        "-maxLabelsPerTimeseries=60",  # cache_config_info has 37 of its own
        "-httpListenAddr=127.0.0.1:{port}",
    ),
)
PROGRAMS = (PROMETHEUS, VICTORIA)


def wanted(page: str) -> list[str]:
    """The lines of a page that a signal uses: the others would only take time."""
    metrics = shipped_catalogue().metrics
    return [line for line in page.splitlines() if line and line[0] != "#" and re.split(r"[{ ]", line)[0] in metrics]


@contextlib.contextmanager
def running(folder: Path, config: object, *options: str, program: Program = PROMETHEUS) -> Iterator[str]:
    """One with this configuration; its URL once it is ready."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = [option.format(folder=folder, port=port) for option in program.options]
    arguments = [command(program.command), *own, *options]
    url = f"http://127.0.0.1:{port}"
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT)
    try:
        until(lambda: process.poll() is not None or _is_ready(f"{url}{program.ready}"))
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        yield url
    finally:
        process.terminate()
        process.wait(60)


def until(holds: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    deadline, pause = time.monotonic() + _PATIENCE, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, "nothing happened"
        pause.wait(0.1)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        return error.code == 401  # it asks for a password, and is there
    except OSError:
        return False


@contextlib.contextmanager
def backfilled(
    folder: Path,
    engines: Iterable[tuple[Target, str]],
    more: Sequence[str] = (),
    options: Sequence[str] = (),
    program: Program = PROMETHEUS,
) -> Iterator[str]:
    """One that knows these recordings, their last scrapes at END. `more`: other series, as OpenMetrics."""
    folder.mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    for target, name in engines:
        taken = recording(name)
        for at, page in zip(taken.times, taken.pages, strict=True):
            when = END - taken.times[-1] + at
            lines += [labelled(line, target, when) for line in wanted(page.decode())]
            lines.append(f"up{{{_labels(target)}}} 1 {when:.3f}")
    lines += more
    if program is PROMETHEUS:
        blocks(folder / "data", lines)
    with running(folder, {}, *options, program=program) as url:
        if program is VICTORIA:
            _import(url, lines)
        yield url


def blocks(data: Path, lines: Iterable[str]) -> None:
    """Storage of a Prometheus with these series, as OpenMetrics with times."""
    text = data.with_suffix(".om")
    with text.open("w") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.write("# EOF\n")
    made = [command("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(text), str(data)]
    done = subprocess.run(made, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _import(url: str, lines: Iterable[str]) -> None:
    """The same series for VictoriaMetrics, which wants milliseconds."""
    told = []
    for line in lines:
        series, when = line.rsplit(" ", 1)
        told.append(f"{series} {round(float(when) * 1000)}\n")
    for path, body in (("/api/v1/import/prometheus", "".join(told)), ("/internal/force_flush", "")):
        urllib.request.urlopen(f"{url}{path}", data=body.encode(), timeout=60).close()


def _labels(target: Target) -> str:
    return ",".join(f'{name}="{value}"' for name, value in target.items())


def labelled(line: str, target: Target, when: float) -> str:
    """A line of a page, as a Prometheus that scrapes the target keeps it."""
    match = _LINE.fullmatch(line)
    assert match is not None, line
    labels = ",".join(part for part in (match[2], _labels(target)) if part)
    return f"{match[1]}{{{labels}}} {match[3]} {when:.3f}"


@contextlib.contextmanager
def scraping(folder: Path, engines: Mapping[str, str], scrapes: int, program: Program = PROMETHEUS) -> Iterator[str]:
    """One that has scraped each engine so many times, a second apart; gives its URL while it goes on.

    `engines`: the name of an instance, and the recording that it replays.
    """
    counts = dict.fromkeys(engines, 0)
    pages = {name: [gzip.compress(_page(page), 1) for page in recording(name).pages] for name in set(engines.values())}

    def route(instance: str, name: str) -> Route:
        def answer(request: Request) -> Answer:
            place = min(counts[instance], len(pages[name]) - 1)  # a page a scrape, however late it comes
            counts[instance] += 1
            headers = {"Content-Type": "text/plain; version=0.0.4", "Content-Encoding": "gzip"}
            return Answer(pages[name][place], headers=headers)

        return answer

    routes = {f"/{instance}/metrics": route(instance, name) for instance, name in engines.items()}
    with serving(routes) as served:
        jobs = [
            {
                "targets": [served.url.removeprefix("http://")],
                "labels": {"instance": i, "__metrics_path__": f"/{i}/metrics"},
            }
            for i in engines
        ]
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": "vllm", "static_configs": jobs}],
        }
        with running(folder, config, program=program) as url:
            until(lambda: _least(url, len(engines)) >= scrapes)
            yield url


def _least(url: str, engines: int) -> float:
    """How many good scrapes there are of the engine that has the fewest."""
    query = urllib.parse.quote(f"min(sum_over_time(up[1h])) and count(up) == {engines}")
    with urllib.request.urlopen(f"{url}/api/v1/query?query={query}&nocache=1", timeout=30) as answer:
        found = json.load(answer)["data"]["result"]
    return float(found[0]["value"][1]) if found else 0.0


def _page(page: bytes) -> bytes:
    return "\n".join([*wanted(page.decode()), ""]).encode()

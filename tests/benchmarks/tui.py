"""What the doctor at a terminal costs. usage: tui.py [seconds [live] [past] [many] [soak]]

A terminal is opened for the real program beside the demo's server, which runs in a process of its own; then ten
thousand view models are made at speed from that server's pages. Prints a table; never fails: a bound missed on a busy
machine is for a person to read.
"""

from __future__ import annotations

import fcntl
import gc
import os
import pty
import resource
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.benchmarks import log
from tests.benchmarks.run import page_with, served_elsewhere
from tests.tui.watching import Clock, Pages, watch_of
from vllm_doctor.recording import demo

PICTURES = 10_000
SIZE = (24, 80)


class Terminal:
    """A program on a terminal of its own. `read` gives what it drew."""

    def __init__(self, command: Sequence[str], size: tuple[int, int] = SIZE) -> None:
        self.started = time.perf_counter()
        self.pid, self.end = pty.fork()
        if self.pid == 0:
            os.environ |= {"TERM": "xterm-256color", "LANG": "C.UTF-8"}
            os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as it is where it is installed
            os.execv(command[0], list(command))
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))

    def read(self, seconds: float) -> bytes:
        """What comes within so many seconds, at the first piece."""
        if not select.select([self.end], [], [], seconds)[0]:
            return b""
        try:
            return os.read(self.end, 65536)
        except OSError:
            return b""

    def until(self, text: bytes, seconds: float) -> float:
        """Seconds until this text was drawn; infinite where it was not."""
        began, seen = time.perf_counter(), b""
        while time.perf_counter() - began < seconds:
            seen = (seen + self.read(0.2))[-65536:]
            if text in seen:
                return time.perf_counter() - began
        return float("inf")

    def drain(self, seconds: float) -> None:
        until = time.perf_counter() + seconds
        while (left := until - time.perf_counter()) > 0:
            self.read(left)

    def press(self, key: bytes) -> float:
        """Milliseconds from a key to the first thing that is drawn."""
        while self.read(0.03):  # until it is quiet
            pass
        began = time.perf_counter()
        os.write(self.end, key)
        self.read(2.0)
        return (time.perf_counter() - began) * 1000

    def cpu(self) -> float:
        """CPU seconds that it used, with all its threads."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """MB in memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def close(self) -> None:
        os.kill(self.pid, signal.SIGTERM)
        self.drain(1.0)
        os.waitpid(self.pid, 0)
        os.close(self.end)


def program(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "vllm_doctor", *arguments]


def live(url: str, seconds: float, row: Callable[[str, float, float, str], None]) -> None:
    opened = []
    for _ in range(5):
        terminal = Terminal(program(url))
        opened.append(terminal.until(b"vllm-doctor", 10))
        terminal.close()
    row("from its start to the frame, best of 5", min(opened), 0.5, "s")
    terminal = Terminal(program(url))
    row("from its start to a verdict", terminal.until(b"CRITICAL", 20), 5, "s")
    terminal.drain(5)
    before, began = terminal.cpu(), time.perf_counter()
    terminal.drain(seconds)
    row(
        f"one engine, one scrape a second, over {seconds:.0f} s: CPU",
        100 * (terminal.cpu() - before) / (time.perf_counter() - began),
        2.5,
        "% of a core",
    )
    row("memory then", terminal.memory(), 100, "MB")
    keys = [terminal.press(key) for _ in range(10) for key in (b"j", b"k", b"4", b"1")]
    row("a key until something is drawn, median", median(keys), 50, "ms")
    row("a key until something is drawn, slowest of 40", max(keys), 50, "ms")
    terminal.close()


def past(megabytes: int, row: Callable[[str, float, float, str], None]) -> None:
    """A log, made as the benchmark of logs makes them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "vllm.log")
        log.write(path, megabytes)
        terminal = Terminal(program(str(path)))
        row(f"{megabytes} MB of log: to the frame", terminal.until(b"vllm-doctor", 10), 0.5, "s")
        keys = [terminal.press(key) for _ in range(5) for key in (b"2", b"1")]
        row("a key while it is read, slowest of 10", max(keys), 50, "ms")
        terminal.until(b"rules: ", 60)
        row("from its start to the time line", time.perf_counter() - terminal.started, 20, "s")
        terminal.drain(2)
        keys = [terminal.press(key) for _ in range(10) for key in (b"4", b"[", b"]", b"h", b"1")]
        row("a key on the time line, median", median(keys), 50, "ms")
        row("a key on the time line, slowest of 50", max(keys), 50, "ms")
        row("memory then", terminal.memory(), 200, "MB")
        terminal.close()


def many(engines: int, seconds: float, row: Callable[[str, float, float, str], None]) -> None:
    """A server of many engines, in a process of its own."""
    code = (
        "import sys, http.server\nsys.path.insert(0, sys.argv[1])\nfrom tests.benchmarks.tui import serve\n"
        "serve(int(sys.argv[2]))"
    )
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-c", code, root, str(engines)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        terminal = Terminal(program(server.stdout.readline().strip()), (40, 140))
        terminal.drain(20)
        before, began = terminal.cpu(), time.perf_counter()
        terminal.drain(seconds)
        used = 100 * (terminal.cpu() - before) / (time.perf_counter() - began)
        row(f"{engines} engines, over {seconds:.0f} s: CPU", used, 15, "% of a core")
        row("memory then", terminal.memory(), 200, "MB")
        keys = [terminal.press(key) for _ in range(5) for key in (b"2", b"j", b"k", b"1")]
        row(f"{engines} engines: a key, slowest of 20", max(keys), 50, "ms")
        terminal.close()
        server.kill()


def serve(engines: int) -> None:
    """Serve a recorded page as that of a server with so many engines; its counters go on."""
    import http.server
    import json

    recording = demo.find("preemption")
    pages = [page_with(engines, number).encode() for number in range(len(recording.pages))]
    began = time.monotonic()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            answers = {"/version": recording.version, "/v1/models": recording.models}
            page = pages[int(time.monotonic() - began) % len(pages)]
            body = json.dumps(answers[self.path]).encode() if self.path in answers else page
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        print(f"http://127.0.0.1:{server.server_address[1]}", flush=True)
        server.serve_forever()


def soak(row: Callable[[str, float, float, str], None]) -> None:
    """Ten thousand view models, one after the other."""
    clock = Clock()
    watch = watch_of(Pages("preemption"), clock)
    watch.open()
    sizes = []
    began = time.perf_counter()
    for number in range(PICTURES):
        watch.step()
        clock.sleep(1.0)
        if number in (PICTURES // 2, PICTURES - 1):
            gc.collect()
            sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    watch.close()
    row(f"{PICTURES:,} view_models: each", 1000 * (time.perf_counter() - began) / PICTURES, 25, "ms")
    row("peak memory after them", sizes[-1], 100, "MB")
    row("of that grown in their second half", sizes[-1] - sizes[0], 5, "MB")


def main() -> None:
    seconds = float(sys.argv[1]) if sys.argv[1:] else 20.0
    parts = sys.argv[2:] or ["live", "past", "many", "soak"]

    def row(what: str, measured: float, bound: float, unit: str) -> None:
        kept = "ok" if measured <= bound else "MISSED"
        print(f"{what:<50}  {f'{measured:.3g} {unit}':>18}  {f'<= {bound:g} {unit}':>20}  {kept}", flush=True)

    if "live" in parts:
        with served_elsewhere() as url:
            live(url, seconds, row)
    if "past" in parts:
        past(200, row)
    if "many" in parts:
        many(64, seconds, row)
    if "soak" in parts:
        soak(row)


if __name__ == "__main__":
    main()

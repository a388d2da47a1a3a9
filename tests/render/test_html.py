"""The page: all of the report, nothing that takes effect, and looked at in a real browser."""

from __future__ import annotations

import json
import re
import subprocess
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.making import shipped_catalogue, shipped_rules
from tests.programs import needed
from tests.render import reports
from vllm_doctor.compare import measure
from vllm_doctor.model.report import Report, Trend
from vllm_doctor.recording import bundle, demo
from vllm_doctor.render.html import render
from vllm_doctor.session.judge import judge
from vllm_doctor.text import redact

HARMLESS = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "footer", "section", "h1", "h2", "h3", "p", "b",
    "span", "code", "pre", "ul", "li", "dl", "dt", "dd", "div", "table", "thead", "tbody", "tr", "th", "td", "figure",
    "figcaption", "svg", "line", "path", "polyline", "circle", "text", "rect",
}  # fmt: skip
HOSTILE = (
    "<script>document.title='pwned'</script>",
    '"><img src=x onerror="document.title=\'pwned\'">',
    "</style><style>body{display:none}</style>",
    "</title><svg/onload=alert(1)>",
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "--></pre><iframe src=//evil.example></iframe>",
)


@cache
def live(name: str = "preemption") -> Report:
    (server,) = bundle.read(demo.folder() / name).sources[:1]
    seen = [server.observation(shipped_catalogue().metrics)]
    report = judge(seen, shipped_rules(), shipped_catalogue(), {}, datetime(2026, 11, 20, tzinfo=UTC))
    return redact.report(replace(report, trends=measure.trends(seen[0].window)))


def log() -> Report:
    cap, died = reports.finding("max-num-seqs-cap"), reports.finding("engine-died", "The engine crashed", "critical")
    began, hour = reports.BEGAN, reports.HOUR
    return reports.postmortem(
        [died, cap],
        [reports.run(began, began + 6 * hour, began + 5 * hour), reports.run(began + 6 * hour, began + 35 * hour)],
        [reports.span("max-num-seqs-cap", began + hour, began + 4 * hour)],
        timeline=reports.trend(began, began + 35 * hour),
    )


def hostile() -> Report:
    """Each text of a report of nearly every kind tries each trick."""
    tricks = " ".join(HOSTILE)
    report = reports.hostile()
    told = replace(report.findings[0], title=tricks, here=tricks, why=tricks, rule=tricks)
    return replace(
        report,
        headline=tricks,
        findings=(told, *report.findings),
        command=("vllm", tricks),
        trends=(Trend("x", tricks, tricks, ((1.0, 1.0), (2.0, 2.0))),),
        redacted={tricks: 1},
    )


class Page(HTMLParser):
    """The tags, attributes and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_verdict_stands_first_and_its_cure_with_it() -> None:
    text = Page(render(live())).text
    body = text[text.index("CRITICAL", text.index("}")) :]
    assert body.index("CRITICAL") < body.index("Fix") < body.index("Over time") < body.index("Not checked")
    assert "The KV cache is too small for the running batch" in body
    for told in ("preemptions per finished request", "rule of thumb", "at most × ", "--max-num-seqs 10", "risk: "):
        assert told in body


def test_vital_signs_are_drawn_over_time() -> None:
    page = Page(render(live()))
    curves = [attributes["points"] or "" for tag, attributes in page.tags if tag == "polyline"]
    assert len(curves) == 6
    assert all(len(points.split()) == 24 for points in curves)
    for points in curves:
        for place in points.split():
            x, y = map(float, place.split(","))
            assert 0 <= x <= 320
            assert 0 <= y <= 96


def test_a_course_is_broken_where_nothing_is_known() -> None:
    known: list[float | None] = [1.0, 2.0, None, 3.0, 4.0, 5.0]
    trend = Trend("x", "x", "", tuple((float(at), value) for at, value in enumerate(known)))
    page = Page(render(replace(live(), trends=(trend,))))
    assert [len((a["points"] or "").split()) for tag, a in page.tags if tag == "polyline"] == [2, 3]


def test_a_log_has_its_time_line_its_spans_and_its_runs() -> None:
    page = Page(render(log()))
    assert [a.get("class") for tag, a in page.tags if tag == "rect"] == ["span"]
    assert sum(a.get("class") == "died" for _, a in page.tags) == 3
    for told in (
        "13 Nov 08:12:00",
        "Runs of the server",
        "CUDA error: out of memory",
        "9,882",
        "A log does not carry it",
    ):
        assert told in page.text


def test_the_corrected_command_is_there() -> None:
    page = Page(render(log()))
    assert "vllm serve org/model-8B --chat-template 'a file; with blanks'" in page.text


@pytest.mark.parametrize("report", [live(), log(), hostile(), reports.unreachable(), reports.crash_loop()])
def test_it_needs_nothing_else_and_nothing_takes_effect(report: Report) -> None:
    text = render(report)
    page = Page(text)
    assert {tag for tag, _ in page.tags} <= HARMLESS
    for tag, attributes in page.tags:
        allowed = {
            "class", "lang", "charset", "name", "content", "http-equiv", "viewbox", "role", "aria-hidden", "d", "x",
            "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "width", "height", "points", "text-anchor", "style",
            "preserveaspectratio",
        }  # fmt: skip
        assert set(attributes) <= allowed, tag
        assert attributes.get("style") in (None, "height:.8rem")
    assert len(re.findall("<style>", text)) == 1
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src &#x27;none&#x27;" in text


def test_hostile_texts_are_shown_as_they_are() -> None:
    shown = Page(render(hostile())).text
    for trick in HOSTILE:
        assert trick in shown


def test_the_same_report_gives_the_same_bytes() -> None:
    assert render(live()) == render(live())


def test_a_crash_loop_stays_short() -> None:
    assert len(render(reports.crash_loop(2000))) < 60_000


# In a browser: Debian's chromium, without a screen. It is started twice, as that takes seconds.

WIDTHS = (1200, 400)
SHOWN: Mapping[str, Callable[[], Report]] = {"live": lambda: live(), "log": log, "hostile": hostile}
FRAMES = """<!doctype html><body style="margin:0;display:flex">{frames}<script>
const pages = {pages}, told = [];
document.querySelectorAll("iframe").forEach((frame, n) => {{
 frame.onload = () => {{
  const d = frame.contentDocument, width = frame.clientWidth;
  const over = [...d.querySelectorAll("body *")].filter(e => e.getBoundingClientRect().right > width + 1).length;
  const foreign = d.querySelectorAll("script,img,iframe,object,link").length;
  told.push([frame.id, width, d.documentElement.scrollWidth, over, foreign, d.title == "pwned" ? 1 : 0].join(" "));
  document.title = told.join("|");
 }};
 frame.srcdoc = pages[frame.id];
}});</script>"""


def browse(folder: Path, *words: str) -> str:
    command = [
        needed("chromium", "chromium", "chromium-browser", "google-chrome"),
        "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
        f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=3000", *words,
    ]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout


def framed(folder: Path, shown: Mapping[str, Report], height: int = 700) -> str:
    """A page that shows the reports in frames of each width, and says in its title what it measured there."""
    frames = "".join(
        f'<iframe id="{name}-{width}" style="flex:none;width:{width}px;height:{height}px;border:0"></iframe>'
        for name in shown
        for width in WIDTHS
    )
    pages = {f"{name}-{width}": render(report) for name, report in shown.items() for width in WIDTHS}
    text = json.dumps(pages).replace("<", "\\u003c")
    path = folder / "frames.html"
    path.write_text(FRAMES.format(frames=frames, pages=text), "utf-8")
    return f"file://{path}"


def test_nothing_is_wider_than_the_window_and_nothing_runs(tmp_path: Path) -> None:
    dom = browse(tmp_path, "--dump-dom", framed(tmp_path, {name: make() for name, make in SHOWN.items()}))
    title = re.search(r"<title>(.*?)</title>", dom, re.DOTALL)
    assert title is not None, dom[:500]
    told = {words[0]: list(map(int, words[1:])) for words in map(str.split, title[1].split("|"))}
    assert told == {f"{name}-{width}": [width, width, 0, 0, 0] for name in SHOWN for width in WIDTHS}


def test_a_screenshot_is_not_blank(tmp_path: Path) -> None:
    shot = tmp_path / "shot.png"
    browse(tmp_path, "--window-size=1600,700", f"--screenshot={shot}", framed(tmp_path, {"live": live()}))
    colours = png_colours(shot.read_bytes())
    (_, most), *others = colours.most_common()
    assert len(others) > 50  # letters have edges
    assert 0.02 < sum(count for _, count in others) / (most + sum(count for _, count in others)) < 0.7


def png_colours(data: bytes) -> Counter[bytes]:
    """How often each colour is in a PNG of 8 bits a channel."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, wide, channels = 8, b"", 0, 4
    while at < len(data):
        size, kind = int.from_bytes(data[at : at + 4], "big"), data[at + 4 : at + 8]
        body = data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            wide, channels = int.from_bytes(body[:4], "big"), {2: 3, 6: 4}[body[9]]
            assert (body[8], body[12]) == (8, 0)
        packed += body if kind == b"IDAT" else b""
        at += 12 + size
    raw, stride = zlib.decompress(packed), wide * channels
    colours: Counter[bytes] = Counter()
    above = bytearray(stride)
    for start in range(0, len(raw), stride + 1):
        line = bytearray(raw[start + 1 : start + 1 + stride])
        _unfilter(raw[start], line, above, channels)
        colours.update(bytes(line[n : n + channels]) for n in range(0, stride, channels * 3))
        above = line
    return colours


def _unfilter(kind: int, line: bytearray, above: bytearray, step: int) -> None:
    """As the PNG specification has it: none, sub, up, average, Paeth."""
    for n in range(len(line)) if kind else ():
        a, b, c = (line[n - step], above[n], above[n - step]) if n >= step else (0, above[n], 0)
        if kind == 4:
            p = a + b - c
            near = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        else:
            near = {1: a, 2: b, 3: (a + b) // 2}[kind]
        line[n] = (line[n] + near) & 255

"""Markdown: what people paste into an issue; nothing that came from outside takes effect in it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.render.reports import (
    BEGAN,
    HOSTILE,
    HOUR,
    crash_loop,
    finding,
    hostile,
    postmortem,
    run,
    span,
    trend,
    unreachable,
)
from tests.test_fixtures import NAMES, judged
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.model.kinds import Severity, SourceKind, Stage
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Change, Correction, EngineSeen, Gain, LeftOut, Report, SourceSeen
from vllm_doctor.render import markdown

FENCE = re.compile(r"^(`{3,})(\w*)\n(.*?)\n\1$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(?<![\\`])(`+)(?!`)(.+?)(?<!`)\1(?!`)")


def prose(shown: str) -> str:
    """What is not code."""
    return SPAN.sub("", FENCE.sub("", shown))


def fenced(shown: str, language: str) -> list[str]:
    return [match[3] for match in FENCE.finditer(shown) if match[2] == language]


def capped() -> Report:
    held = [span("cap", BEGAN + 2 * HOUR, BEGAN + 8 * HOUR)]
    return postmortem([finding("cap", "Requests queue")], spans=held, timeline=trend(BEGAN, BEGAN + 10 * HOUR))


# ---- text and code


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("plain words, 0.5 of --max-num-seqs", "plain words, 0.5 of --max-num-seqs"),
        ("kv_cache_usage", "kv_cache_usage"),
        ("__init__ _a_", r"\_\_init\_\_ \_a\_"),
        ("*bold* ~~gone~~", r"\*bold\* \~\~gone\~\~"),
        ("![x](y)", r"!\[x\](y)"),
        ("<img src=x> </details>", r"\<img src=x> \</details>"),
        ("a|b", r"a\|b"),
        ("`code`", r"\`code\`"),
        ("a\\b", r"a\\b"),
        ("&amp; a & b", r"\&amp; a & b"),
        ("&#64;all", "`&#64;all`"),
        ("$x$", r"\$x\$"),
        ("two\nlines\r\n\n# three", "two lines # three"),
        ("# head", r"\# head"),
        ("#tag", "#tag"),
        ("- item", r"\- item"),
        ("--flag", "--flag"),
        ("---", r"\---"),
        ("===", r"\==="),
        ("---- ---", r"\---- ---"),
        ("> quote", r"\> quote"),
        ("1. item", r"1\. item"),
        ("2) item", r"2\) item"),
        ("1.5 s", "1.5 s"),
        ("@octocat", "`@octocat`"),
        ("a@b.example", "`a@b.example`"),
        ("octo/cat#7", "`octo/cat#7`"),
        ("GH-12", "`GH-12`"),
        ("https://x.example", "`https://x.example`"),
        ("_www.x.example", "`_www.x.example`"),
        (":tada:", "`:tada:`"),
        ("see a@b|c `@d`", r"see `a@b`\|c `` `@d` ``"),
        ("10:15:08", "10:15:08"),
        ("", ""),
    ],
)
def test_text(value: str, escaped: str) -> None:
    assert markdown.text(value) == escaped


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("a*b|c", "`a*b|c`"),
        ("a`b", "``a`b``"),
        ("``a`` `b", "``` ``a`` `b ```"),
        ("`", "`` ` ``"),
        ("two\nlines", "`two lines`"),
        ("", ""),
    ],
)
def test_code(value: str, code: str) -> None:
    assert markdown.code(value) == code


# ---- nothing takes effect


def test_of_hostile_text_nothing_takes_effect() -> None:
    shown = markdown.render(hostile())
    outside = prose(shown)
    assert HOSTILE.split()[0] not in outside
    assert not re.search(r"(?<!\\)!\[|(?<!\\)\]\(", outside)
    tags = re.findall(r"(?<!\\)<[^>\n]*>", outside)
    assert tags == ["<details>", "<summary>", "</summary>", "</details>"]
    assert not re.search(r"(?i)@\w|#\d|https?://|www\.|gh-\d|:tada:", outside)
    assert not re.search(r"(?<!\\)[*~$](?!\*)(?=octo|bold|x|gone)", outside)
    headings = [line for line in outside.splitlines() if re.match(r"#{1,6}\s", line)]
    assert len(headings) == 2
    assert [line for line in outside.splitlines() if re.match(r"(>|1\. |\+ |={3,}|-{3,})", line)] == []


def test_hostile_text_breaks_out_of_no_block() -> None:
    shown = markdown.render(hostile())
    fences = [line for line in shown.splitlines() if re.fullmatch(r"`{3,}\w*", line)]
    assert len(fences) % 2 == 0
    assert [match[2] for match in FENCE.finditer(shown)] == ["sh", "diff", "sh"]
    command = fenced(shown, "sh")[0]
    assert "````" in command
    for line in shown.splitlines():
        if line.startswith("|"):
            cells = re.findall(r"(?<!\\)\|", line.replace("\\\\", ""))
            assert len(cells) in (5, 8)


@pytest.mark.parametrize("name", NAMES)
def test_of_a_recorded_server(name: str) -> None:
    report = judged(name, slice(0, 4))
    shown = markdown.render(report)
    assert shown.startswith(f"## {report.verdict.value.upper()}: ")
    assert shown.endswith("\n")
    assert all(line.isprintable() for line in shown.splitlines())
    assert "\n\n\n" not in shown
    assert "`http://127.0.0.1:8000`" in shown
    assert all(line == line.rstrip() for line in shown.splitlines() if not line.startswith("|"))
    assert all(f"`{found.rule}`" in shown for found in report.findings if found.role != "symptom")


def test_blocks_of_code_are_no_wider_than_a_screen() -> None:
    for report in (capped(), crash_loop(), judged("preemption", slice(0, 4))):
        for _, _, body in (match.groups() for match in FENCE.finditer(markdown.render(report))):
            assert max(map(len, body.splitlines())) <= 80


# ---- what it says


def test_what_comes_first() -> None:
    shown = markdown.render(capped())
    parts = (
        "## WARNING: Requests queue",
        "`/var/log/vllm.log`: 13 Nov 08:12 – 18:12 (10 h), 11,740,112 lines, 10,214 recognised",
        "`org/model-8B` · vLLM 0.22.1 · 1 engine · 1 GPU",
        "vllm serve",
        "running  ",
        "### `cap`\n",
        "**When** 6 h of 10 h: 13 Nov 10:12:00 – 16:12:00",
        "**Why** 64 run, 44 wait. That is so.",
        "| What | Value | Threshold | From |\n|---|--:|---|---|\n"
        "| requests waiting per running one | 0.772 | `> 0.1` | log |",
        "Thresholds: rule of thumb",
        "**Fix** Admit what fits",
        "- 64 × 2 = 128",
        "- the value needs `kv_room` and `kv_blocks`, which are unknown here (a log",
        "- restart; then expect: waiting falls to 0",
        "<details>\n<summary>Not checked: 4 rules could not be checked</summary>\n\n",
        "\n\n</details>",
        "Rules: 1 ok · 1 warning · 1 unknown · more: `vllm-doctor rules cap`",
    )
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)


def test_a_remedy_is_a_diff() -> None:
    (diff,) = fenced(markdown.render(capped()), "diff")
    assert diff.splitlines() == [
        "- --num-gpu-blocks-override 80",
        "- --max-num-seqs 64",
        "+ --max-num-seqs 128",
        "+ --async-scheduling",
        "+ VLLM_X=1  (environment)",
    ]
    assert "ulimit -n 65536" in fenced(markdown.render(capped()), "sh")
    assert "- as an administrator" in markdown.render(capped())


def test_a_flag_that_is_switched_off_is_named_as_it_was_given() -> None:
    report = capped()
    remedy = replace(report.findings[0].remedies[0], set={}, unset=("--no-x", "--x"), was={"--x": False}, env={})
    found = replace(report.findings[0], remedies=(remedy,))
    assert fenced(markdown.render(replace(report, findings=(found,))), "diff") == ["- --no-x"]
    unread = replace(report.findings[0], remedies=(replace(remedy, was={}),))
    assert fenced(markdown.render(replace(report, findings=(unread,))), "diff") == ["- --no-x\n- --x"]


def test_a_finding_that_is_not_the_headline_has_its_title_and_severity() -> None:
    report = replace(capped(), findings=(*capped().findings, finding("eager", "Graphs are off")))
    assert "### `eager`: Graphs are off (warning)\n" in markdown.render(report)


def test_the_command_can_be_pasted() -> None:
    (command, _) = fenced(markdown.render(capped()), "sh")
    assert command == "vllm serve org/model-8B --chat-template 'a file; with blanks'"
    long = replace(capped(), command=("vllm", "serve", *(f"--flag-{place}=a b" for place in range(20))))
    lines = fenced(markdown.render(long), "sh")[0].splitlines()
    assert len(lines) > 3
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert all(line.count("'") % 2 == 0 for line in lines)


def test_the_lives_are_a_table_those_alike_in_one_row() -> None:
    runs = [run(BEGAN, BEGAN + HOUR, BEGAN + HOUR), run(BEGAN + 2 * HOUR, BEGAN + 10 * HOUR, began=False)]
    shown = markdown.render(postmortem(runs=runs))
    assert "| Run | From – to | Served | Ended | In | Cause | Log line |\n|--:|---|---|---|---|---|--:|\n" in shown
    assert (
        "| 1 | 13 Nov 08:12:00 – 09:12:00 | yes | crashed 13 Nov 09:12:00 | `Worker_TP2` | `CUDA error: out of memory`"
        " | 9,882 |\n| 2 | 13 Nov 10:12:00 – 18:12:00 (log starts mid-run) | yes | goes on |  |  |  |"
    ) in shown
    loop = markdown.render(crash_loop(500))
    assert "| 1–500 | 13 Nov 08:12:00 – 14 Nov 00:51:00 | no | crashed, each of them | `Worker_TP2` |" in loop
    assert "50 … 49,950 |" in loop
    assert "500 times" in loop
    assert "| Run |" not in markdown.render(capped())


def test_of_lives_that_differ_forty_are_shown() -> None:
    report = crash_loop(500)
    runs = tuple(replace(lived, cause=f"error {place % 7}") for place, lived in enumerate(report.runs))
    shown = markdown.render(replace(report, runs=runs))
    assert len(re.findall(r"^\| \d+ \|", shown, re.MULTILINE)) == 40
    assert "460 runs between them are not shown; 460 of them crashed." in shown


def test_a_life_of_which_little_is_known() -> None:
    runs = [run(None, None, end="died"), run(None, None, end="stopped")]
    shown = markdown.render(postmortem(runs=runs))
    assert "| 1 | no times | yes | crashed |  | the log shows no exception |  |" in shown
    assert "| 2 | no times | yes | was stopped |  |  |  |" in shown


def test_a_log_that_tells_its_zone() -> None:
    assert "18:12 UTC (10 h)" in markdown.render(replace(postmortem(zoned=True)))
    assert "18:12 (10 h)" in markdown.render(postmortem())


def test_several_engines() -> None:
    engines = tuple(EngineSeen({"engine": f"{engine}", "model_name": "m"}, ()) for engine in range(8))
    found = tuple(replace(finding("cap"), subject=engine.subject) for engine in engines[:6])
    shown = markdown.render(replace(postmortem(found), engines=engines))
    assert "**Where** on 6 of 8 engines: engine 0; engine 1; engine 2; engine 3 and 2 more" in shown
    assert shown.count("**Why**") == 1


def test_notes_and_opportunities_are_a_list() -> None:
    asides = [finding("client-limited", "It waits", "info", "not-server"), finding("env", "Unknown", "info", "root")]
    spans = [span("client-limited", BEGAN, BEGAN + HOUR), span("env", BEGAN, BEGAN + 10 * HOUR)]
    shown = markdown.render(postmortem(asides, spans=spans))
    client, note = (line for line in shown.splitlines() if line.startswith(("- Client", "- Note")))
    assert client.startswith(
        "- Client: It waits (`client-limited`): 64 run, 44 wait. (60 min of 10 h) → Admit what fits"
    )
    assert note.startswith("- Note: Unknown (`env`): 64 run, 44 wait. → Admit what fits: `+ --max-num-seqs 128`")


def test_symptoms_are_explained_and_not_told_apart() -> None:
    symptom = replace(finding("slow", "It is slow", role="symptom"), explained_by="cap")
    shown = markdown.render(replace(capped(), findings=(*capped().findings, symptom)))
    assert "Explains: It is slow (`slow`)" in shown
    assert "### `slow`" not in shown


def test_every_rule_that_could_not_be_judged_is_listed_what_the_log_lacks_first() -> None:
    shown = markdown.render(capped())
    details = shown[shown.index("<details>") : shown.index("</details>")]
    items = [line for line in details.splitlines() if line.startswith("- ")]
    assert items[0].endswith(": `preemption`, `flashinfer-missing`")
    assert items[1].startswith("- No target was given")
    assert items[2].endswith(": `flashinfer-missing`, `cpu-throttled`")


def test_what_a_source_had_to_say_is_in_the_details() -> None:
    source = SourceSeen(SourceKind.LOG, "a.log", 0.0, 0, None, ("line 3 is cut",))
    assert "- `a.log`: line 3 is cut\n" in markdown.render(replace(capped(), sources=(source,)))


def test_vital_signs_of_a_server_and_none_of_a_log() -> None:
    assert "| Metric | Value |" in markdown.render(judged("preemption", slice(0, 4)))
    assert "| Metric |" not in markdown.render(capped())


def test_nobody_answered() -> None:
    shown = markdown.render(unreachable())
    assert shown.startswith("## UNKNOWN: `http://127.0.0.1:1` refuses connections")
    assert "- `http://127.0.0.1:1`\n" in shown


def test_the_command_line_has_it() -> None:
    assert "markdown" in FORMATS


def test_the_corrected_command_is_a_diff() -> None:
    change = Change("--max-num-seqs", 64.0, None, "cap")
    shown = markdown.render(replace(capped(), correction=Correction(("vllm", "serve", "a b"), (change,))))
    assert (
        "### The corrected command, after one restart\n\n**Restart** with this command, to fix `cap`:\n\n"
        "```diff\n- --max-num-seqs 64\n```\n\n```sh\nvllm serve 'a b'\n```"
    ) in shown


def test_what_it_costs_what_will_be_and_what_is_left_out() -> None:
    [cure] = finding("cap").remedies
    told = replace(
        cure, gain=Gain(1.2, "x"), then=("It holds *11*.",), starts_unknown={"gpu_memory_at_start": Reason.DENIED}
    )
    dear = replace(finding("cap"), gain=Gain(2.148, "`slots`"), stage=Stage.LIMIT, remedies=(told,))
    left = LeftOut("other", "Admit *less*", "--max-num-seqs 128 cures cap")
    correction = Correction(("vllm",), (Change("--max-num-seqs", 64.0, None, "cap"),), (left,))
    shown = markdown.render(replace(postmortem([dear]), correction=correction))
    assert "**Gain** at most × 2.15 (\\`slots\\`)\n" in shown
    assert "- then: It holds \\*11\\*.\n" in shown
    assert "- not known whether vLLM starts with it: `gpu_memory_at_start` (permission denied" in shown
    assert "- does not fix `other` (Admit \\*less\\*): --max-num-seqs 128 cures cap\n" in shown
    assert "**Gain** unknown\n" in markdown.render(postmortem([replace(dear, gain=None, remedies=(cure,))]))
    note = markdown.render(postmortem([replace(dear, severity=Severity.INFO, gain=Gain(1.004, "stopped"))]))
    assert "Gain: at most × 1.01 (stopped)." in note

"""Files sort themselves: what each is taken for, whatever stands beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.paths import NVIDIA_SMI

COMMAND = "vllm serve Qwen/Qwen2.5-7B-Instruct --max-num-seqs 4\n"
LOG = "".join(
    f"INFO 11-20 13:30:{second:02} [loggers.py:248] Engine 000: Avg prompt throughput: 30.1 tokens/s, Avg generation"
    " throughput: 40.2 tokens/s, Running: 4 reqs, Waiting: 26 reqs, GPU KV cache usage: 1.2%, Prefix cache hit rate:"
    " 0.0%\n"
    for second in range(0, 60, 10)
)
SMI = NVIDIA_SMI / "h100-driver-550.xml"


def doctor(words: Sequence[str], given: str = "") -> tuple[int, dict[str, Any], str]:
    """The exit code, the JSON report and what stands on stderr."""
    run = subprocess.run(
        [sys.executable, "-m", "vllm_doctor", "--json", *words],
        input=given,
        capture_output=True,
        text=True,
        check=False,
    )
    told = run.stdout if run.stdout.startswith("{") else "{}"
    return run.returncode, json.loads(told), run.stderr


def written(folder: Path, **texts: str) -> list[str]:
    paths = []
    for name, text in texts.items():
        path = folder / name.replace("_", ".")
        path.write_text(text, "utf-8")
        paths.append(str(path))
    return paths


def kinds(report: dict[str, Any]) -> list[str]:
    return sorted(source["kind"] for source in report["sources"] if source["error"] is None)


@pytest.mark.parametrize("turned", [False, True])
def test_a_log_a_command_and_gpus_in_any_order(turned: bool, tmp_path: Path) -> None:
    words = [*written(tmp_path, server_log=LOG, cmd_txt=COMMAND), str(SMI)]
    code, report, _ = doctor(words[::-1] if turned else words)
    assert kinds(report) == ["command", "gpu", "log"]
    assert report["patient"]["gpu"] == "NVIDIA H100 80GB HBM3"
    assert report["command"]["was"][:3] == ["vllm", "serve", "Qwen/Qwen2.5-7B-Instruct"]
    assert code == 1
    assert "max-num-seqs-cap" in {finding["rule"] for finding in report["findings"]}


def test_all_in_one_file_on_standard_input(tmp_path: Path) -> None:
    code, report, _ = doctor(["-"], f"It is slow, as one can see here:\n\n```\n{COMMAND}```\n\n```\n{LOG}```\n")
    assert kinds(report) == ["command", "log"]
    assert code == 1


def test_what_each_text_was_taken_for_is_told(tmp_path: Path) -> None:
    words = written(tmp_path, server_log=LOG, cmd_txt=COMMAND)
    _, report, _ = doctor([*words, str(SMI)])
    taken = {source["target"]: source["taken_as"] for source in report["sources"] if source["taken_as"]}
    assert taken == {f"{words[1]}: line 1": "a shell command", str(SMI): "GPUs, by nvidia-smi"}


def test_what_cannot_be_read_stops_nothing(tmp_path: Path) -> None:
    words = written(tmp_path, server_log=LOG, notes_txt="nothing of ours\n")
    _, report, _ = doctor([*words, str(tmp_path / "missing.log"), "--command", "none.sh"])
    assert report["error"] is None
    assert kinds(report) == ["log"]
    errors = [source["error"]["message"] for source in report["sources"] if source["error"]]
    assert len(errors) == 3
    assert any("notes.txt: no log line of vLLM" in error for error in errors)
    assert any("missing.log' is neither a file" in error for error in errors)
    assert any("none.sh" in error for error in errors)


def test_nothing_that_can_be_read_is_one_line_and_exit_3(tmp_path: Path) -> None:
    code, report, said = doctor([str(tmp_path / "missing.log"), str(tmp_path / "gone.txt")])
    assert (code, report["verdict"], report["sources"]) == (3, "unknown", [])
    assert said.count("\n") == 1


def test_commands_that_differ_beside_a_log_are_named_and_not_used(tmp_path: Path) -> None:
    words = written(tmp_path, server_log=LOG, a_sh=COMMAND, b_sh=COMMAND.replace("4", "8"))
    _, report, _ = doctor(words)
    assert kinds(report) == ["log"]
    assert any("2 different commands" in source["error"]["message"] for source in report["sources"] if source["error"])


def test_commands_alone_are_servers_of_their_own(tmp_path: Path) -> None:
    words = written(tmp_path, a_sh=COMMAND, b_sh=COMMAND.replace("7B", "14B"))
    _, report, _ = doctor(words)
    assert kinds(report) == ["command", "command"]


def test_gpus_alone_are_no_server(tmp_path: Path) -> None:
    code, report, _ = doctor(["--nvidia-smi", str(SMI)])
    assert (code, report["verdict"]) == (3, "unknown")
    assert report["headline"] == "Nothing was measured: only the GPUs were read"
    assert kinds(report) == ["gpu"]


def test_a_folder_is_its_files(tmp_path: Path) -> None:
    written(tmp_path, server_log=LOG, cmd_txt=COMMAND)
    (tmp_path / ".hidden").write_text("x")
    _, report, _ = doctor([str(tmp_path)])
    assert kinds(report) == ["command", "log"]


def test_a_command_is_taken_as_a_word() -> None:
    _, report, _ = doctor([COMMAND.strip()])
    assert kinds(report) == ["command"]


def test_an_export_of_an_issue(tmp_path: Path) -> None:
    issue = {"title": "Slow", "body": f"As follows:\n\n```\n{COMMAND}```\n", "comments": [{"body": f"```\n{LOG}```"}]}
    code, report, _ = doctor(written(tmp_path, issue_json=json.dumps(issue)))
    assert kinds(report) == ["command", "log"]
    assert code == 1


def test_of_an_export_of_several_issues_the_first_is_read_and_the_others_are_told(tmp_path: Path) -> None:
    issues = [{"title": name, "body": f"So:\n\n```\n{COMMAND}```\n"} for name in ("Slow", "Dead", "Asleep")]
    _, report, _ = doctor(written(tmp_path, issues_json=json.dumps(issues)))
    [problem] = [source["error"] for source in report["sources"] if source["error"]]
    assert "of its issues the first was read, 2 not" in problem["message"]
    assert kinds(report).count("command") == 1


def test_lines_of_a_scrape_within_an_issue(tmp_path: Path) -> None:
    scrape = "".join(
        f'vllm:{name}{{engine="0",model_name="m"}} {value}\n'
        for name, value in (("num_requests_running", 4.0), ("num_requests_waiting", 9.0), ("kv_cache_usage_perc", 0.1))
    )
    issue = f"These are its metrics right now, I think:\n\n```\n{scrape}```\nwith\n```\n{COMMAND}```\n"
    _, report, _ = doctor(written(tmp_path, issue_md=issue))
    assert kinds(report) == ["command", "page"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.sh", "$({code})\n`{code}`\nvllm serve m --max-num-seqs $({code})\n"),
        ("page.md", "Look at this, which is slow for us.\n```sh\n$({code})\nvllm serve m\n```\n"),
        ("compose.yaml", "services: {{a: {{image: vllm/vllm-openai, command: ['$({code})', '--model', m]}}}}\n"),
        ("tagged.yaml", "a: !!python/object/apply:os.system ['{code}']\nmodel: m\n"),
        ("issue.json", '{{"body": "```\\n$({code})\\nvllm serve m\\n```"}}'),
        ("page.html", "<html><script>{code}</script><pre>$({code})\nvllm serve m</pre></html>"),
        ("smi.txt", "| NVIDIA-SMI $({code}) |\nGPU 0: NVIDIA A100 $({code}) (UUID: GPU-1)\n"),
        (
            "server.log",
            "INFO 11-20 13:30:00 [core.py:1] $({code}) non-default args: {{'model': '$({code})'}}\n",
        ),
        ("app.py", "import os\nos.system('{code}')\nfrom vllm import LLM\nLLM('m', enforce_eager=True)\n"),
        ("job.sbatch", "#!/bin/bash\n#SBATCH --gres=gpu:$({code})\n{code}\nsrun vllm serve m --enforce-eager\n"),
        ("Dockerfile", 'FROM vllm/vllm-openai\nRUN {code}\nCMD ["--model", "$({code})", "--enforce-eager"]\n'),
        ("vllm.container", "[Container]\nImage=vllm/vllm-openai\nExec=--model $({code}) --enforce-eager\n"),
        ("vllm.service", "[Service]\nExecStartPre={code}\nExecStart=vllm serve $({code}) --enforce-eager\n"),
        ("supervisord.conf", "[program:a]\ncommand=vllm serve $({code}) --enforce-eager\n"),
        ("Makefile", "X := $(shell {code})\nserve:\n\t{code}\n\tvllm serve $(X) --enforce-eager\n"),
        ("justfile", "x := `{code}`\nserve:\n    {code}\n    vllm serve {{{{x}}}} --enforce-eager\n"),
        (
            "main.tf",
            'resource "a" "b" {{\n  image = "vllm/vllm-openai"\n  args = ["--model", "$({code})"]\n}}\n',
        ),
        (
            "pod.yaml",
            "apiVersion: v1\nkind: Pod\nspec: {{containers: [{{image: vllm/vllm-openai,"
            " command: [bash, -c, '{code}; vllm serve m --enforce-eager']}}]}}\n",
        ),
        ("values.yaml", "vllm: {{args: ['$({code})', --enforce-eager], model: '{{{{ {code} }}}}'}}\n"),
        (
            "dynamo.yaml",
            "Common: {{model: '$({code})'}}\nVllmWorker: {{ServiceArgs: {{workers: 1}}, seed: '$({code})'}}\n",
        ),
        ("config.yaml", "model: $({code})\nenforce-eager: true\n"),
        ("launch.ps1", "{code}\nvllm serve m `\n  --max-num-seqs $({code}) `\n  --enforce-eager\n"),
        ("ps.txt", "root 7 0.0 0.1 1 1 ? Ssl 10:00 0:01 python3 /usr/bin/vllm serve $({code}) --enforce-eager\n"),
        ("env.txt", "Collecting environment information...\nVLLM_X=$({code})\nGPU 0: NVIDIA A100 `{code}`\n"),
        ("smi.xml", "<nvidia_smi_log><gpu><product_name>$({code})</product_name></gpu></nvidia_smi_log>\n"),
        ("smi.csv", "index, name, memory.total [MiB]\n0, $({code}), 81920 MiB\n"),
        ("rocm.txt", "GPU[0]\t\t: Card Series: \t\t$({code})\n"),
        ("result.txt", "$ vllm bench serve --model $({code})\n= Serving Benchmark Result =\nSuccessful requests: 9\n"),
        ("page.prom", 'vllm:num_requests_running{{engine="0",model_name="$({code})"}} 1.0\n'),
        ("export.json", '[{{"textPayload": "INFO 11-20 13:30:00 [core.py:1] $({code})", "insertId": "1"}}]\n'),
        ("chat.txt", "It is slow for us, as one can see here: `vllm serve $({code}) --enforce-eager` and `{code}`.\n"),
    ],
)
def test_nothing_that_is_read_is_run(name: str, text: str, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = tmp_path / name
    path.write_text(text.format(code=f"touch {marker}"), "utf-8")
    doctor([str(path)])
    doctor([str(path), "--format", "patch"])  # which reads what it would write
    assert not marker.exists()
    assert os.listdir(tmp_path) == [name]


def test_gpus_beside_a_result_are_those_of_its_server(tmp_path: Path) -> None:
    result = "vllm bench serve\n============ Serving Benchmark Result ============\n"
    result += "".join(
        f"{name:<40} {value}\n"
        for name, value in (
            ("Successful requests:", 100), ("Benchmark duration (s):", 20.0), ("Total input tokens:", 25600),
            ("Total generated tokens:", 6400), ("Request throughput (req/s):", 5.0),
            ("Output token throughput (tok/s):", 320.0), ("Mean TTFT (ms):", 100.0), ("Mean TPOT (ms):", 20.0),
        )
    )  # fmt: skip
    _, report, _ = doctor([*written(tmp_path, result_txt=result), str(SMI)])
    assert kinds(report) == ["bench", "gpu"]


SQUASHED = (
    "It is slow on our H100: APIServer pid=7) INFO 11-20 13:30:00 [chat_utils.py:560] Detected the chat template"
    ' (APIServer pid=7) INFO: 10.0.0.25:53030 - "POST /v1/chat/completions HTTP/1.1" 200 OK (APIServer pid=7) '
    + " (APIServer pid=7) ".join(LOG.splitlines())
    + " and nothing else.\n"
)


def test_records_in_a_sentence_are_a_log(tmp_path: Path) -> None:
    _, report, _ = doctor(written(tmp_path, told_txt=SQUASHED))
    assert kinds(report) == ["log"]
    assert "max-num-seqs-cap" in {f["rule"] for f in report["findings"]} or report["vitals"]["requests_waiting"] == 26


def test_why_a_manifest_cannot_be_read_is_said(tmp_path: Path) -> None:
    code, report, _ = doctor(written(tmp_path, compose_yaml="services:\n  a:\n    image: vllm/vllm-openai\n   b: [\n"))
    assert code == 3
    assert "this is no valid YAML" in report["error"]["message"]
    _, report, _ = doctor(written(tmp_path, compose_yaml="services: [\n", server_log=LOG))
    [problem] = [source["error"]["message"] for source in report["sources"] if source["error"]]
    assert "compose.yaml: line 2: this is no valid YAML" in problem


def test_flags_of_a_command_are_judged_by_the_version_beside_its_log(tmp_path: Path) -> None:
    environment = "Collecting environment information...\nPyTorch version: 2.5.1+cu124\nOS: Ubuntu 22.04 (x86_64)\n"
    environment += "GPU models and configuration: \nGPU 0: NVIDIA H100 80GB HBM3\n\nvLLM Version: 0.6.6.post1\n"
    command = "vllm serve m --model-max-len 16"
    issue = f"It is slow here, as one can see:\n```\n{command}\n```\n```\n{LOG}```\n```\n{environment}```\n"
    _, report, _ = doctor(written(tmp_path, issue_md=issue))
    [finding] = [finding for finding in report["findings"] if finding["rule"] == "flag-unknown"]
    assert "vLLM 0.6.6.post1 does not have --model-max-len" in finding["here"]


def test_an_issue_may_have_the_line_ends_of_a_form(tmp_path: Path) -> None:
    issue = f"It is slow.\n```\n{COMMAND}```\n```\n{LOG}```\n".replace("\n", "\r\n")
    path = tmp_path / "issue.md"
    path.write_bytes(issue.encode())
    _, report, _ = doctor([str(path)])
    assert kinds(report) == ["command", "log"]
    assert not any("Windows" in note for source in report["sources"] for note in source.get("notes", ()))


QUOTED = """# DeepSeek-V3.2 on 8xH20 30 decode tokens/sec

vllm                              0.13.0rc2.dev178+g676db55ee

vllm serve mypath/DeepSeek-V3.2 \\
   --tensor-parallel-size 8 \\
   --reasoning-parser deepseek_v3

The output tokens is 30 tokens/s 1/req which is slower than the recipe, where it is said:

vllm bench serve --model deepseek-ai/DeepSeek-V3.2 --dataset-name random --request-rate 10 --num-prompt 100

============ Serving Benchmark Result ============
Successful requests:                     100
Failed requests:                         0
"""
"""The start of vllm-project/vllm issue 30832, shortened."""


def test_a_benchmark_that_is_quoted_without_a_figure_hides_nothing(tmp_path: Path) -> None:
    _, report, _ = doctor(written(tmp_path, issue_md=QUOTED))
    assert (report["patient"]["vllm"], report["patient"]["gpu"]) == ("0.13.0rc2.dev178+g676db55ee", "H20")
    assert report["headline"].startswith("Slower than expected: a request gets 30 tokens/s")
    # What answers was not refused at its start, whatever is computed of its memory.
    assert [finding for finding in report["findings"] if finding["stage"] == "broken"] == []


def test_the_same_command_without_a_speed_is_judged_as_one_that_has_yet_to_start(tmp_path: Path) -> None:
    lines = [line for line in QUOTED.split("============")[0].splitlines() if "30 " not in line]
    _, report, _ = doctor([*written(tmp_path, issue_md="\n".join(lines)), "--gpu", "8xH20"])
    assert [finding["rule"] for finding in report["findings"]] == ["context-exceeds-kv-cache"]


def test_a_note_on_a_command_is_no_headline(tmp_path: Path) -> None:
    _, report, _ = doctor(written(tmp_path, a_sh="vllm serve Qwen/Qwen2.5-7B-Instruct --no-enable-prefix-caching\n"))
    assert [finding["rule"] for finding in report["findings"]] == ["prefix-cache-off"]
    assert report["headline"] == "Nothing was measured: only its command was checked"

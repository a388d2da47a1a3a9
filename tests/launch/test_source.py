from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.launch.manifests.written import of_file
from tests.paths import COMMANDS
from vllm_doctor.launch.source import facts, notes, open_command, read
from vllm_doctor.launch.start import Flaw, Form
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.facts import COMMAND, ENVIRONMENT, FORM
from vllm_doctor.model.reading import Known, Reading, Unknown, Value
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm import flags

UNTOLD = Unknown(Reason.NOT_IN_COMMAND)


def values(found: dict[str, Reading]) -> dict[str, Value]:
    return {name: reading.value for name, reading in found.items() if isinstance(reading, Known)}


# ---- text or file


def test_a_script() -> None:
    [start] = of_file("start.sh")
    assert (start.form, start.place) == (Form.SHELL, "line 19")
    switches = {"--enforce-eager": True, "--trust-remote-code": True}
    assert start.command.flags == {"--max-num-seqs": 64.0, "--port": 8000.0, **switches}
    assert start.unknown_flags == {"--uvicorn-log-level"}
    assert not start.is_open
    assert start.environment == {
        "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
        "HF_TOKEN": None,
        "NCCL_DEBUG": "INFO",
        "OMP_NUM_THREADS": "4",
    }
    assert start.resources.cpu_limit == 16.0


def test_a_page_with_several_commands() -> None:
    shell, compose = of_file("guide.md")
    assert (shell.form, shell.place) == (Form.SHELL, "line 17")
    assert [(fault.kind, fault.line, fault.lost) for fault in shell.faults] == [
        (Flaw.COMMENT_AFTER_BACKSLASH, 18, ("--max-num-batched-tokens", "--enforce-eager"))
    ]
    assert (compose.form, compose.command.flags["--dtype"]) == (Form.COMPOSE, "half")


@pytest.mark.parametrize("quote", ["", "'"])
def test_what_a_script_hands_on_and_writes(quote: str) -> None:
    backslash = "\\" if quote else "\\\\"
    text = (
        f"echo begin\nkubectl apply -f - <<{quote}END{quote}\n"
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.20.0\n"
        "    args: [--model, m, --enforce-eager]\nEND\n"
        f"cat > /etc/systemd/system/v.service <<-{quote}UNIT{quote}\n"
        f"  [Service]\n  ExecStart=/opt/v/bin/vllm serve n {backslash}\n    --dtype half\n  UNIT\n"
    )
    pod, unit = read(text)
    assert (pod.form, pod.version, pod.command.model) == (Form.KUBERNETES, "0.20.0", "m")
    assert (unit.form, unit.place, unit.command.flags) == (Form.SYSTEMD, "ExecStart, line 12", {"--dtype": "half"})


def test_a_script_that_starts_a_server_is_no_manifest() -> None:
    [start] = read("cat <<E >x.yaml\nservices: {v: {image: vllm/vllm-openai, command: --model n}}\nE\nvllm serve m\n")
    assert start.command.model == "m"


def test_a_line_that_begins_with_a_quote_is_no_yaml() -> None:
    [start] = read('"/opt/v/bin/vllm" serve m --dtype half')
    assert start.command.flags == {"--dtype": "half"}


def test_a_second_word_before_the_flags() -> None:
    [start] = read("vllm serve serve org/m --dtype half")
    assert [(fault.kind, fault.says) for fault in start.faults] == [
        (Flaw.STRAY_WORD, "vLLM takes one model, which is serve here, and refuses org/m")
    ]
    assert read("vllm serve m $MORE --dtype half")[0].faults[0].kind is Flaw.UNEXPANDED


def test_lines_that_end_as_on_windows() -> None:
    [start] = of_file("windows.sh")
    assert start.command.flags == {"--max-num-seqs": 8.0}
    assert "as on Windows" in start.notes[0]


def test_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"vllm serve m")
    with (tmp_path / "c").open() as given:
        monkeypatch.setattr(sys, "stdin", given)
        found = open_command("-")
    assert found.target(found.starts[0]) == "standard input: line 1"


def test_a_file_goes_before_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "vllm serve x").write_text("vllm serve m")
    assert open_command("vllm serve x").starts[0].command.model == "m"
    assert open_command("vllm serve y").starts[0].command.model == "y"


def test_a_byte_order_mark_is_no_part_of_the_program(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_bytes(b"\xef\xbb\xbfvllm serve m")
    assert open_command(str(path)).starts[0].command.model == "m"


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (b"", "empty", "is empty"),
        (b" \n", "empty", "is empty"),
        (b"\x7fELF\x00\x00", "unreadable", "NUL bytes"),
        (b"\xff\xfev\x00l\x00", "unreadable", "UTF-16"),
        (b"vllm serve \xe9\xff", "unreadable", "no text"),
        (b"vllm serve m " + b"x" * 10_000_000, "too-large", "larger than 1 MB"),
        (b"vllm serve m" + b" --x" * 3000, "too-large", "arguments"),
        (b"vllm serve " + b"m" * 140_000, "too-large", "no system takes it"),
        (b"vllm serve m\n" * 65, "too-large", "more than 64 vLLM commands"),
        (b"ls -l", "not-vllm", "no vLLM server is started here: give a line with"),
        (b"vllm bench serve --model m", "not-vllm", "starts no server"),
        (b"'vllm serve m", "not-vllm", "line 1: nothing closes this quote"),
        (b"docker run --gpus all \\ # all\n  vllm/vllm-openai --model m", "not-vllm", "line 1: a comment after"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_file_that_is_no_command(content: bytes, kind: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "command"
    path.write_bytes(content)
    with pytest.raises(SourceError) as caught:
        open_command(str(path))
    assert caught.value.kind == kind
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("given", ["no-such-file.yaml", "x" * 5000, "./no-such-folder", "a\0b"])
def test_what_is_neither(given: str) -> None:
    with pytest.raises(SourceError) as caught:
        open_command(given)
    assert caught.value.kind == "not-found"
    assert len(str(caught.value)) < 400


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is a folder"):
        open_command(str(tmp_path))


def test_our_own_environment_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MODEL", "mine")
    marker = tmp_path / "run"
    [start] = read(f"X=$(touch {marker}) vllm serve $MODEL `touch {marker}`")
    assert start.command.model is None
    assert not marker.exists()


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m " + "$X " * 1900,
        "vllm serve m " + "a=" * 400_000,
        "vllm serve m '" + "--x " * 200_000,
        "vllm serve m\n" + "--x \\ #'\n" * 90_000,
        "sudo " * 150_000 + "vllm serve m",
        "```\n" * 200_000,
        "[Service]\nExecStart=vllm serve m \\\n" + "# x\n" * 200_000,
        "bash -c '" * 50_000 + "vllm serve m",
        "a: {{ x }}\n" * 30_000,
        "{{" * 400_000,
    ],
    ids=lambda text: text[:20],
)
def test_a_hostile_text_does_not_take_long(text: str) -> None:
    started = time.process_time()
    with contextlib.suppress(SourceError):
        read(text)
    assert time.process_time() - started < 10


# ---- facts


def test_facts() -> None:
    [start] = read(
        "docker run --gpus 2 --cpus 4 --shm-size 64m -e VLLM_X=1 -e HF_HOME=/h -e HF_TOKEN=s vllm/vllm-openai:v0.11.0"
        " --model m --max-num-seqs 8 --enforce-eager --port $PORT"
    )
    found = facts(start)
    assert values(found) == {
        FORM: "docker-run",
        COMMAND: True,
        ENVIRONMENT: True,
        "--model": "m",
        "--max-num-seqs": 8.0,
        "--enforce-eager": True,
        "$VLLM_X": 1.0,
        "$HF_HOME": "/h",
        "vllm_version": "0.11.0",
        "gpus_requested": 2.0,
        "cpu_quota": 4.0,
        "shm_size": 64.0 * 2**20,
        "cores_usable": 4.0,
        "api_servers": 1.0,
        "engine_cores": 1.0,
        "workers": 1.0,
        "coordinators": 0.0,
        "cores_terms": "1 API server + 1 engine core + 1 worker",
        "data_parallel_elsewhere": False,
        "command_faults": 0.0,
        "command_unexpanded": 1.0,
        "flags_unknown": 0.0,
        "flags_in_no_version": 0.0,
        "flags_judged_as": "0.11.0",
        "flags_version_told": 1.0,
        "flags_of_release": 1.0,
        "flags_written": "--model --max-num-seqs --enforce-eager --port",
    }
    assert found["--port"] == found["$HF_TOKEN"] == UNTOLD
    origins = {name: reading.origin for name, reading in found.items() if isinstance(reading, Known)}
    assert (origins["--model"], origins["vllm_version"], origins["cpu_quota"]) == ("cmdline", "image", "manifest")


def test_facts_of_what_is_not_whole() -> None:
    [start] = read("vllm serve m --enforce-eager $MORE")
    found = facts(start)
    assert found[COMMAND] == found[ENVIRONMENT] == UNTOLD
    assert values(found)["--enforce-eager"] is True


def test_facts_of_a_broken_command() -> None:
    [start] = read("vllm serve m \\ # x\n --dtype half --port 1")
    found = values(facts(start))
    assert (found["command_faults"], found["command_fault"], found["command_fault_line"]) == (
        1.0,
        "comment-after-backslash",
        1.0,
    )
    assert found["command_flags_lost"] == "--dtype, --port"
    assert notes(start) == [
        "line 1: a comment after the backslash: the line is not continued, so the command ends there;"
        " never reaches vLLM: --dtype, --port"
    ]


# ---- the commands of the public guides that this project began from


def test_the_first_guide() -> None:
    [batch, chunked, speculative, block] = read(
        """
        vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-batched-tokens 8192 --gpu-memory-utilization 0.85
        vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-chunked-prefill --max-num-batched-tokens 4096
        vllm serve meta-llama/Llama-3.1-8B-Instruct --tensor-parallel-size 2 --num-speculative-decoder-samples 4
        vllm serve meta-llama/Llama-3.1-8B-Instruct --block-size 32 --gpu-memory-utilization 0.88
        """
    )
    assert batch.command.flags == {"--max-num-batched-tokens": 8192.0, "--gpu-memory-utilization": 0.85}
    assert chunked.command.flags == {"--enable-chunked-prefill": True, "--max-num-batched-tokens": 4096.0}
    assert speculative.command.flags["--num-speculative-decoder-samples"] == 4.0
    assert not flags.is_flag("--num-speculative-decoder-samples")
    assert block.command.flags == {"--block-size": 32.0, "--gpu-memory-utilization": 0.88}
    assert [start.faults for start in (batch, chunked, speculative, block)] == [()] * 4


def test_the_second_guide() -> None:
    [start] = read(
        """
        python -m vllm.benchmarks.benchmark_serving --backend openai --num-prompts 100 --request-rate 10
        python -m vllm.entrypoints.openai.api_server \\
          --model TheBloke/Meta-Llama-3.1-8B-Instruct-AWQ --quantization awq --dtype half \\
          --gpu-memory-utilization 0.95 --max-num-seqs 256 --max-num-batched-tokens 32768 --enable-prefix-caching
        """
    )
    assert start.command.program == "python -m vllm.entrypoints.openai.api_server"
    assert start.command.model == "TheBloke/Meta-Llama-3.1-8B-Instruct-AWQ"
    assert start.command.flags == {
        "--model": "TheBloke/Meta-Llama-3.1-8B-Instruct-AWQ",
        "--quantization": "awq",
        "--dtype": "half",
        "--gpu-memory-utilization": 0.95,
        "--max-num-seqs": 256.0,
        "--max-num-batched-tokens": 32768.0,
        "--enable-prefix-caching": True,
    }
    assert start.faults == ()


def test_the_third_guide() -> None:
    broken, speculative = read(
        """
        vllm serve mistralai/Mistral-7B-Instruct-v0.2 \\
          --dtype float16 \\                  # half precision
          --gpu-memory-utilization 0.90 \\    # default: 0.90
          --max-num-batched-tokens 16384 \\
          --uvicorn-log-level warning

        vllm serve meta-llama/Meta-Llama-3-8B \\
          --speculative-model meta-llama/Meta-Llama-3-1B \\
          --num-speculative-tokens 5
        """
    )
    assert broken.command.flags == {"--dtype": "float16"}
    assert broken.lost == ("--gpu-memory-utilization", "--max-num-batched-tokens", "--uvicorn-log-level")
    assert [(fault.kind, fault.line) for fault in broken.faults] == [(Flaw.COMMENT_AFTER_BACKSLASH, 3)]
    assert speculative.command.flags == {
        "--speculative-model": "meta-llama/Meta-Llama-3-1B",
        "--num-speculative-tokens": 5.0,
    }
    assert flags.has("0.7.3", "--speculative-model") is True
    assert flags.has("0.32.0", "--speculative-model") is False


def test_the_fourth_guide() -> None:
    [start] = read('{"enable-chunked-prefill": False, "max-num-batched-tokens": 0, "pipeline-parallel-size": 1}')
    assert start.form == Form.CONFIG
    assert {flag: value for flag, value in start.command.flags.items() if flag != "--config"} == {
        "--enable-chunked-prefill": False,
        "--max-num-batched-tokens": 0.0,
        "--pipeline-parallel-size": 1.0,
    }


def test_the_fifth_guide() -> None:
    [start] = read("vllm serve m -dp 4 --enable-expert-parallel --swap-space 4")
    assert start.command.flags == {
        "--data-parallel-size": 4.0,
        "--enable-expert-parallel": True,
        "--swap-space": 4.0,
    }


def test_no_data_file_is_forgotten() -> None:
    names = {path.name for path in COMMANDS.iterdir()}
    tests = "".join(path.read_text("utf-8") for path in Path(__file__).parent.rglob("test_*.py"))
    assert {name for name in names if name not in tests} == set()


# Flags that the vLLM does not have


IMAGE = "docker run vllm/vllm-openai:v0.32.0"
LATEST = "docker run vllm/vllm-openai:latest --model m"
SERVER = "python -m vllm.entrypoints.openai.api_server --model m"


def told(text: str) -> dict[str, Value]:
    [start] = read(text)
    return {name: value for name, value in values(facts(start)).items() if name.startswith("flags_")}


def test_a_key_of_a_config_that_is_no_flag() -> None:
    [start] = read("model: m\nmax-num-seqs: 4\nswap-speed: 31337\n")
    assert told("model: m\nmax-num-seqs: 4\nswap-speed: 31337\n")["flags_unknown_names"] == "--swap-speed"
    assert "31337" not in repr(facts(start))


def test_a_flag_that_is_gone_and_one_that_never_was() -> None:
    found = told(f"{IMAGE} --model m --swap-space 16 --num-speculative-decoder-samples 4 --seed 1")
    assert found["flags_unknown"] == 2.0
    assert found["flags_in_no_version"] == 1.0
    assert found["flags_unknown_names"] == "--swap-space --num-speculative-decoder-samples"
    says = str(found["flags_unknown_says"])
    assert says.startswith("--swap-space (in 0.4.3 to 0.17.1; gone: ")
    assert says.endswith(
        "--num-speculative-decoder-samples"
        " (in no release; a fork or a development build may have it; nearest: --speculative-config)"
    )
    assert (found["flags_judged_as"], found["flags_version_told"]) == ("0.32.0", 1.0)


@pytest.mark.parametrize(
    ("version", "flag", "strange"),
    [
        ("0.9.2", "--disable-log-requests", 0),
        ("0.9.2", "--enable-log-requests", 1),
        ("0.9.2", "--no-enable-log-requests", 1),
        ("0.32.0", "--disable-log-requests", 1),  # of all releases up to 0.16, and again of 0.33
        ("0.33.0", "--disable-log-requests", 0),
        ("0.32.0", "--no-enable-log-requests", 0),
        ("0.32.0", "--enable_log_requests=False", 0),
        ("0.10.0", "-O3", 0),  # where --optimization-level came later
        ("0.10.0", "--optimization-level 3", 1),
        ("0.33.0", "-O3", 0),
        ("0.33.0", "-O 3", 0),
    ],
)
def test_a_switch_is_looked_up_as_it_is_written(version: str, flag: str, strange: int) -> None:
    assert told(f"docker run vllm/vllm-openai:v{version} --model m {flag}")["flags_unknown"] == strange


def test_a_flag_that_was_renamed() -> None:
    found = told("docker run vllm/vllm-openai:v0.11.0 --model m --speculative-model draft")
    assert found["flags_unknown_says"] == "--speculative-model (in 0.4.3 to 0.8.2; now --speculative-config, key model)"


def test_without_a_version_the_newest_judges() -> None:
    found = told("vllm serve m --max-num-seqs 4")
    assert found == {
        "flags_unknown": 0.0, "flags_in_no_version": 0.0, "flags_judged_as": flags.newest(), "flags_version_told": 0.0,
        "flags_of_release": 0.0, "flags_written": "--max-num-seqs", "flags_window": " ".join(flags.releases()),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "judged_as", "says"),
    [
        ("vllm serve m --swap-space 4", "0.17.1", "after 0.4.3, up to 0.17.1, by vllm serve and --swap-space"),
        (f"{SERVER} --swap-space 4", "0.17.1", "up to 0.17.1, by --swap-space"),
        (f"{LATEST} --swap-space 4", "0.17.1", "up to 0.17.1, by --swap-space"),
        (f"{LATEST} --disable-log-requests", "0.33.0", "up to 0.16.0, or 0.33.0 or later, by --disable-log-requests"),
        (f"{LATEST} --enable-log-requests", "0.33.0", "0.10.1 or later, by --enable-log-requests"),
        (f"VLLM_ALL2ALL_BACKEND=naive {SERVER} -tp 2", "0.33.0", "0.9.0 or later, by VLLM_ALL2ALL_BACKEND"),
        (f"{LATEST} --eplb-window-size $SIZE", "0.11.2", "0.9.2 to 0.11.2, by --eplb-window-size"),
        (f"{LATEST} --all2all-backend deepep_v2", "0.33.0", "0.24.0 or later, by --all2all-backend deepep_v2"),
    ],
)
def test_without_a_version_its_flags_date_it(text: str, judged_as: str, says: str) -> None:
    found = told(text)
    assert (found["flags_judged_as"], found["flags_window_says"]) == (judged_as, says)
    assert found["flags_unknown"] == 0.0


def test_flags_of_which_no_release_has_all() -> None:
    found = told("vllm serve m --swap-space 4 --watermark 0.1")
    assert found["flags_contradiction_says"] == "--swap-space was gone in 0.18.0, --watermark came in 0.24.0"
    assert (found["flags_unknown_names"], found["flags_judged_as"]) == ("--swap-space", flags.newest())
    assert "flags_window_says" not in found


@pytest.mark.parametrize(
    ("image", "is_release"),
    [
        ("vllm/vllm-openai:v0.11.0", 1.0),
        ("registry.local:5000/mirror/vllm-openai:v0.11.0-x86_64", 1.0),
        ("vllm/vllm-openai:v0.10.1.1", 1.0),
        ("vllm/vllm-openai:v0.11.1rc2", 0.0),
        ("vllm/vllm-openai:v0.99.0", 0.0),
        ("vllm/vllm-openai:v0.11.0-patched", 0.0),
        ("rocm/vllm:rocm6.3.1_vllm_0.8.5", 0.0),
        ("registry.local/vllm:v0.11.0", 0.0),
        ("vllm/vllm-openai:nightly", 0.0),
    ],
)
def test_whose_flags_are_known_for_certain(image: str, is_release: float) -> None:
    assert told(f"docker run {image} --model m --no-such-flag")["flags_of_release"] == is_release


def test_a_version_that_the_user_tells_is_a_release() -> None:
    [start] = read("docker run vllm/vllm-openai:latest --model m --swap-space 4")
    found = values(facts(replace(start, version="0.18.0")))
    assert (found["flags_of_release"], found["flags_unknown"]) == (1.0, 1.0)
    assert values(facts(replace(start, version="0.18.1.dev3+gabc")))["flags_of_release"] == 0.0


def test_a_command_of_very_many_flags_is_dated_at_once() -> None:
    names = " ".join(f"--no-such-{at}.x{at}" for at in range(900))
    began = time.process_time()
    found = told(f"vllm serve m --swap-space 4 {names} --max-num-seqs 4")
    assert found["flags_judged_as"] == "0.17.1"
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "written",
    [
        "-tp 2",
        "--max_num_seqs 4",
        "--no-enable-prefix-caching",
        "--compilation-config.mode 3",
        "-O3",
        "--omni",
        "--max-num-se 4",
    ],
)
def test_other_ways_of_writing_are_no_strangers(written: str) -> None:
    assert told(f"{IMAGE} --model m {written}")["flags_unknown"] == 0.0


def test_a_stranger_with_a_value_that_is_not_told() -> None:
    assert told(f"{IMAGE} --model m --swap-space $SWAP")["flags_unknown_names"] == "--swap-space"

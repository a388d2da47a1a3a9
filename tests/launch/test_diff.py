from __future__ import annotations

from vllm_doctor.launch.diff import Running, lines, of_config, of_words
from vllm_doctor.model.report import Change
from vllm_doctor.vllm.command_line import parse

FILE = "model: m\nmax_num_seqs: 64\nenforce_eager: true\ndtype: float32\n"
ARGV = ["python3", "/opt/vllm", "serve", "--config", "/etc/vllm.yaml", "--dtype", "half", "--seed=1", "--api-key", "S3"]
RUNNING = Running(parse(ARGV, lambda path: FILE), "pid 7")


def test_one_flag_a_line() -> None:
    assert lines(["vllm", "serve", "m", "-tp", "2", "--x", "1", "2"]) == ["vllm serve m \\", "  -tp 2 \\", "  --x 1 2"]
    assert lines(["vllm", "--x", "'{\n}'"]) == ["vllm \\", "  --x '{", "}'"]
    assert lines([]) == []


def test_what_stands_in_the_config_file_is_changed_there_and_the_rest_on_the_command_line() -> None:
    changes = [
        Change("--max-num-seqs", 64.0, 10.0, "a"),
        Change("--enforce-eager", True, None, "b"),
        Change("--dtype", "half", "auto", "c"),  # stands in both: the command line counts
        Change("OMP_NUM_THREADS", None, 1.0, "d"),
    ]
    shell, config = RUNNING.patched({0: changes})
    assert [line for line in shell.lines if line[0] in "+-"][2:] == [
        "-python3 /opt/vllm serve \\",
        "+OMP_NUM_THREADS=1 python3 /opt/vllm serve \\",
        "-  --dtype half \\",
        "+  --dtype auto \\",
    ]
    assert (config.form, config.file) == ("config", "/etc/vllm.yaml")
    assert config.lines == ("max_num_seqs: 10", "enforce_eager: null")
    assert "S3" not in str((shell, config))


def test_a_key_is_written_as_the_file_writes_its_keys() -> None:
    changes = [Change("--max-num-seqs", None, 10.0, "a"), Change("--stream-interval", None, 8.0, "a")]
    patch = of_config({"--enforce-eager": "enforce-eager", "--max-num-seqs": "max_num_seqs"}, changes, "c", "")
    assert patch.lines == ("max_num_seqs: 10", "stream-interval: 8")
    patch = of_config({"--enforce-eager": "enforce_eager"}, changes, "c", "")
    assert patch.lines == ("max_num_seqs: 10", "stream_interval: 8")


def test_nothing_changes_without_changes() -> None:
    assert RUNNING.patched({}) == ()
    assert of_words(["vllm", "serve", "m"], [], "").lines == ()

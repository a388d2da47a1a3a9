from __future__ import annotations

import pytest

from vllm_doctor.launch.start import Flaw, Form, Resources, Start, judged
from vllm_doctor.launch.unwrap import of_script


def starts(text: str) -> list[Start]:
    return [judged(written) for written in of_script(text)]


def started(text: str) -> Start:
    [start] = starts(text)
    return start


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve m",
        "CUDA_VISIBLE_DEVICES=0,1 vllm serve m",
        "sudo -E -u vllm vllm serve m",
        "sudo vllm serve m",
        "nohup vllm serve m > log 2>&1 &",
        "env -i X=1 Y=2 vllm serve m",
        "exec vllm serve m",
        "time nice -n 5 vllm serve m",
        "taskset -c 0-7 vllm serve m",
        "numactl --cpunodebind=0 --membind 0 vllm serve m",
        "uv run --with vllm vllm serve m",
        "uvx vllm serve m",
        "conda run -n v vllm serve m",
        "bash -c 'vllm serve m'",
        'sh -lc "cd /x && exec vllm serve m"',
        "tmux new-session -d -s v 'vllm serve m'",
        "ssh host 'cd x; vllm serve m'",
        "sudo bash -c 'env A=1 vllm serve m'",
        "source venv/bin/activate && vllm serve m | tee log",
        "(vllm serve m)",
        "$ vllm serve m",
        "tini -- vllm serve m",
        "timeout 60 vllm serve m",
    ],
)
def test_programs_that_start_vllm(line: str) -> None:
    start = started(line)
    assert start.argv == ("vllm", "serve", "m")
    assert start.command.model == "m"
    assert start.faults == ()


@pytest.mark.parametrize(
    "line",
    [
        "echo vllm serve m",
        "tail -f vllm.log",
        "grep vllm serve m",
        "pip install 'vllm>=0.9'",
        "vllm bench serve --model m",
        "python -m vllm.benchmarks.benchmark_serving --backend openai",
        "curl http://localhost:8000/v1/models",
        "docker pull vllm/vllm-openai:latest",
        "docker run -e A=1",
        "docker run ubuntu ls",
        "docker ps",
        "bash start.sh",
        "bash -c",
        "sudo",
    ],
)
def test_programs_that_do_not(line: str) -> None:
    assert starts(line) == []


def test_a_shell_in_a_shell_in_a_shell_ends() -> None:
    text = "vllm serve m"
    for _ in range(12):
        text = "sudo " * 3 + f"bash -c {text!r}"
    assert starts(text) == []


DOCKER = "docker run --gpus all --ipc=host -p 8000:8000 "


@pytest.mark.parametrize(
    ("line", "argv"),
    [
        (f"{DOCKER} vllm/vllm-openai:latest --model m", "vllm serve --model m"),
        (f"{DOCKER} vllm/vllm-openai:v0.12.0 m -tp 2", "vllm serve m -tp 2"),
        (f"{DOCKER} vllm/vllm-openai:v0.8.5 --model m", "python3 -m vllm.entrypoints.openai.api_server --model m"),
        (f"{DOCKER} vllm/vllm-openai serve m", "vllm serve m"),
        (f"{DOCKER} my/image vllm serve m", "vllm serve m"),
        (f"{DOCKER} --entrypoint vllm my/image serve m", "vllm serve m"),
        (f"{DOCKER} --entrypoint=/bin/bash my/image -c 'vllm serve m'", "vllm serve m"),
        ("sudo podman run -dit --name v -v/a:/b vllm/vllm-openai --model m", "vllm serve --model m"),
        ("docker container run --rm vllm/vllm-openai@sha256:0 --model m", "vllm serve --model m"),
    ],
)
def test_containers(line: str, argv: str) -> None:
    start = started(line)
    assert start.form == Form.DOCKER_RUN
    assert start.argv == tuple(argv.split())
    assert start.command.model == "m"


def test_what_a_container_is_given() -> None:
    start = started(
        """docker run --gpus '"device=0,1"' --shm-size=16g --cpus 6 --ulimit nofile=65536:65536 -e VLLM_X=1 \\
        --env HF_TOKEN=s3cret -e NCCL_DEBUG -eOMP_NUM_THREADS=2 vllm/vllm-openai:v0.11.0 --model m"""
    )
    assert start.resources == Resources(gpus=2.0, cpu_limit=6.0, shm_bytes=16.0 * 2**30, open_files=65536.0)
    assert start.environment == {"VLLM_X": "1", "HF_TOKEN": None, "NCCL_DEBUG": None, "OMP_NUM_THREADS": "2"}
    assert start.is_environment_whole
    assert start.version == "0.11.0"


def test_a_file_of_variables_is_not_read() -> None:
    start = started("docker run --env-file /etc/secrets vllm/vllm-openai --model m")
    assert not start.is_environment_whole
    assert start.notes == ("an --env-file is not read: what it sets is not known",)


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.11.0", "0.11.0"),
        ("registry.example:5000/mirror/vllm-openai:0.9.1-cu128", "0.9.1"),
        ("vllm/vllm-openai:v0.8.5.post1", "0.8.5.post1"),
        ("vllm/vllm-openai:v0.11.1rc3@sha256:00", "0.11.1rc3"),
        ("vllm/vllm-openai:latest", None),
        ("vllm/vllm-openai:nightly-0123", None),
        ("vllm/vllm-openai", None),
        ("registry.example:5000/vllm-openai", None),
        ("lmcache/vllm-openai:v0.3.1", None),
        ("my/server:v1.2.3", None),
        ("vllm/vllm-openai:v0.10.1.1", "0.10.1.1"),
        ("rocm/vllm:rocm6.4.1_vllm_0.9.0.1_20250605", "0.9.0.1"),
        ("my/server:vllm-0.29.0", "0.29.0"),
        ("registry.example/rhaiis/vllm-cuda-rhel9:3.1.0", None),
        ("registry.example/vendor/vllm:25.9.1", None),
    ],
)
def test_the_version_of_an_image(image: str, version: str | None) -> None:
    assert started(f"docker run {image} vllm serve m").version == version


@pytest.mark.parametrize(
    ("container", "model"),
    [
        ("my/server --model m -tp 2 --max-num-seqs 8 --enforce-eager", "m"),
        ("my/server org/m --max-num-seqs 8 --dtype auto --port 1", "org/m"),
        ("my/server org/m --max-num-seqs 8 --port 1", None),
        ("llama-server:cuda -m /x.gguf --host 0.0.0.0 --port 1 --n-gpu-layers 9", None),
    ],
)
def test_a_container_of_another_image_is_vllm_by_its_flags(container: str, model: str | None) -> None:
    found = [start.command.model for start in starts(f"docker run {container}")]
    assert found == ([] if model is None else [model])


def test_the_pieces_that_a_shell_expands() -> None:
    text = 'vllm serve "$M" $MORE --port "${P}" --host a$H'
    assert started(text).variables == {"$M": False, "$MORE": True, "${P}": False, "$H": True}


def test_json_over_several_lines_is_shown_in_one() -> None:
    start = started('vllm serve m --x \'{"a":1,\n   "b":2}\' --y "c\nd"')
    assert start.argv == ("vllm", "serve", "m", "--x", '{"a":1, "b":2}', "--y", "c\nd")


def test_two_flags_with_the_value_of_one_variable() -> None:
    says = [fault.says for fault in started("vllm serve m --max-num-seqs $N --max-num-batched-tokens $N").faults]
    assert says == [f"$N is not in the text: the value of {flag} is not known" for flag in
                    ("--max-num-seqs", "--max-num-batched-tokens")]  # fmt: skip


# ---- what the text gets wrong


@pytest.mark.parametrize(
    ("text", "kind", "line", "argv", "lost"),
    [
        (
            "vllm serve m \\ # first\n  --max-num-seqs 8 \\\n  --enforce-eager",
            Flaw.COMMENT_AFTER_BACKSLASH, 1, ["vllm", "serve", "m", " #", "first"],
            ("--max-num-seqs", "--enforce-eager"),
        ),
        (
            "vllm serve m \\\n  -tp 2 \\    # don't\n  --max-num-seqs 8\necho --done",
            Flaw.COMMENT_AFTER_BACKSLASH, 2, ["vllm", "serve", "m", "-tp", "2", " "], ("--max-num-seqs",),
        ),
        (
            "vllm serve m \\ \n  --dtype half --api-key -S3CRET \\\n  --seed 0",
            Flaw.SPACE_AFTER_BACKSLASH, 1, ["vllm", "serve", "m", " "], ("--dtype", "--api-key", "--seed"),
        ),
        (
            "vllm serve m \\\n  # a note\n  --dtype half",
            Flaw.COMMENT_IN_COMMAND, 2, ["vllm", "serve", "m"], ("--dtype",),
        ),
        (
            "vllm serve m --port 1 # a note \\\n  --dtype half",
            Flaw.COMMENT_IN_COMMAND, 1, ["vllm", "serve", "m", "--port", "1"], ("--dtype",),
        ),
        ("vllm serve m\n  --dtype half\n", Flaw.MISSING_BACKSLASH, 1, ["vllm", "serve", "m"], ("--dtype",)),
        ("vllm serve m \\\n\n  --dtype half\n", Flaw.MISSING_BACKSLASH, 2, ["vllm", "serve", "m"], ("--dtype",)),
        (
            "vllm serve m --hf-overrides '{\"a\": 1} --dtype half",
            Flaw.UNBALANCED_QUOTE, 1, ["vllm", "serve", "m", "--hf-overrides"], ("--dtype",),
        ),
        (
            "vllm serve m –dtype half —port 1",
            Flaw.CURLY_QUOTES, 1, ["vllm", "serve", "m", "–dtype", "half", "—port", "1"], ("--dtype", "--port"),
        ),
        ("vllm serve m --dtype “half”", Flaw.CURLY_QUOTES, 1, ["vllm", "serve", "m", "--dtype", "“half”"], ()),
        (
            "vllm serve m\u00a0--dtype half",
            Flaw.NO_BREAK_SPACE, 1, ["vllm", "serve", "m\u00a0--dtype", "half"], ("--dtype",),
        ),
        (
            "vllm serve m \\ --dtype half \\ --port 1",
            Flaw.SPACE_AFTER_BACKSLASH, 1, ["vllm", "serve", "m", " --dtype", "half", " --port", "1"],
            ("--dtype", "--port"),
        ),
        (
            "vllm serve m '--dtype half'",
            Flaw.JOINED_WORDS, 1, ["vllm", "serve", "m", "--dtype half"], ("--dtype",),
        ),
    ],
)  # fmt: skip
def test_faults(text: str, kind: Flaw, line: int, argv: list[str], lost: tuple[str, ...]) -> None:
    start = started(text)
    assert {(fault.kind, fault.line) for fault in start.faults} == {(kind, line)}
    assert list(start.argv) == argv
    assert start.lost == lost
    assert not start.command.flags.keys() & set(lost)
    assert start.command.model in ("m", None)


@pytest.mark.parametrize(
    "text",
    [
        "vllm serve m # start it\ncurl -X POST http://localhost",
        "vllm serve m\n\n# --dtype half\n",
        "vllm serve m; --dtype half",
        "# a note\nvllm serve m \\\n  --dtype half\necho --done",
        'vllm serve m --hf-overrides \'{"a b": "c -- d"}\'',
        "vllm serve /models/My\\ Model",
    ],
)
def test_what_is_no_fault(text: str) -> None:
    assert started(text).faults == ()


def test_what_is_not_expanded() -> None:
    start = started('vllm serve "$MODEL" -tp ${TP:-2} --max-num-seqs "$(nproc)" --port 1')
    assert start.unknown_flags == {"--max-num-seqs"}
    assert start.command.flags == {"--tensor-parallel-size": 2.0, "--port": 1.0}
    assert start.notes == ("line 1: read with the defaults of TP, which may be set to others where it runs",)
    assert start.command.model is None
    assert not start.is_open
    assert [fault.says.partition(" ")[0] for fault in start.faults] == ["$MODEL", "$(…)"]


def test_options_of_docker_that_are_not_in_the_text() -> None:
    start = started("docker run --gpus all $OPTIONS -e OMP_NUM_THREADS=4 vllm/vllm-openai:v0.10.0 --model m --seed 1")
    assert (start.version, start.environment) == ("0.10.0", {"OMP_NUM_THREADS": "4"})
    assert start.command.flags == {"--model": "m", "--seed": 1.0}
    assert started("docker run --gpus all $IMAGE --model m --max-model-len 8 --seed 1").image == "$IMAGE"


@pytest.mark.parametrize(
    "line", ["$ARGS", '"$@"', "--$X 1", "--model n $X", "--config /etc/v.yaml", "--dtype half $X", "--dtype 'half"]
)
def test_an_argument_that_may_be_any_flag(line: str) -> None:
    assert started(f"vllm serve m {line}").is_open


@pytest.mark.parametrize("line", ["--dtype $X", "--api-key $X", "--served-model-name a $X", "--max-num-seqs=$X"])
def test_a_value_that_is_none(line: str) -> None:
    assert not started(f"vllm serve m {line}").is_open


SECRET = "S3CRET-0123456789"


@pytest.mark.parametrize(
    "words",
    [
        f"--api-key {SECRET}",
        f"--api-key {SECRET} {SECRET}2",
        f"--api-key={SECRET}",
        f"–api-key {SECRET}",
        f"\\ --api-key {SECRET}",
        f"'--api-key {SECRET}'",
        f"' --api_key={SECRET}'",
        f"\u00a0--api-key {SECRET}",
        f"--api-key ${{KEY:-{SECRET}}}",
        f"--served-model-name ${{NAME:-{SECRET}}}",
        f"--served-model-name $(echo {SECRET})",
        f"--otlp-traces-endpoint https://u:{SECRET}@h",
        f"\\ # mine\n --hf-token {SECRET}",
        f"\\ \n --api-key {SECRET}",
        f"--api-key '{SECRET}",
        f'--kv-transfer-config \'{{"api_key": "{SECRET}"}}\'',
    ],
)
def test_secrets(words: str) -> None:
    for text in (
        f"export HF_TOKEN={SECRET} X={SECRET}\nAWS_SECRET={SECRET} vllm serve m {words}",
        f"docker run -e HF_TOKEN={SECRET} -eX={SECRET} vllm/vllm-openai --model m {words}",
    ):
        for start in starts(text):
            assert SECRET not in repr(start)


def test_a_mark_cannot_be_forged() -> None:
    from vllm_doctor.launch.source import read

    [start] = read("vllm serve m --dtype \ue000half\ue001")
    assert start.unknown_flags == frozenset()

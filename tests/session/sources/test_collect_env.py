"""A file of collect-env: by itself, with a command, beside a log, before and after what else tells of the GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_main import Doctor, doctor
from tests.sources.collect_env.test_source import AMD, SECTIONS

__all__ = ["doctor"]

LOG = """\
INFO 10-06 06:17:10 [__init__.py:216] Automatically detected platform cuda.
INFO 10-06 06:17:14 [api_server.py:1839] vLLM API server version 0.11.0
INFO 10-06 06:18:30 [loggers.py:127] Engine 000: Avg prompt throughput: 9.0 tokens/s, Avg generation throughput: 40.0 tokens/s, Running: 1 reqs, Waiting: 0 reqs, GPU KV cache usage: 1.0%, Prefix cache hit rate: 0.0%
"""  # noqa: E501


@pytest.fixture
def env(tmp_path: Path) -> str:
    path = tmp_path / "env.txt"
    path.write_text(SECTIONS)
    return str(path)


@pytest.mark.parametrize("more", [LOG, "\n```\nvllm serve org/m-7B\n```\n"])
def test_a_text_may_hold_more(more: str, doctor: Doctor, env: str) -> None:
    Path(env).write_text(f"```\n{SECTIONS}```\n{more}")
    report = doctor(env, "--json").report
    assert "collect-env" in {source["kind"] for source in report["sources"]}
    assert len({source["kind"] for source in report["sources"]}) == 2


def test_alone_it_tells_of_no_server(doctor: Doctor, env: str) -> None:
    ran = doctor(env, "--json")
    assert (ran.code, ran.report["verdict"], ran.report["error"]["kind"]) == (3, "unknown", "no-server")
    assert "vLLM 0.12.1.dev7+gabcdef123, 2 × NVIDIA H100 80GB HBM3" in ran.report["headline"]
    assert [source["kind"] for source in ran.report["sources"]] == ["collect-env"]


def test_with_a_command_it_tells_the_machine(doctor: Doctor, env: str) -> None:
    report = doctor(env, "--command", "vllm serve m -tp 2", "--json").report
    patient = report["patient"]
    assert (patient["vllm"], patient["gpu"], patient["gpus"]) == (
        "0.12.1.dev7+gabcdef123",
        "NVIDIA H100 80GB HBM3",
        2,
    )
    assert patient["cores"]["usable"] is None  # at most 48: a container may have fewer


def test_fewer_cores_than_are_wanted_are_too_few_in_any_container(doctor: Doctor, env: str) -> None:
    text = SECTIONS.replace("On-line CPU(s) list:                  0-95", "On-line CPU(s) list: 0-3")
    Path(env).write_text(text)
    report = doctor(env, "--command", "vllm serve m -tp 2", "--json").report
    assert "cpu-underprovisioned" in {finding["rule"] for finding in report["findings"]}


def test_a_log_is_believed_before_it(doctor: Doctor, env: str, tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(LOG)
    report = doctor(str(tmp_path / "server.log"), env, "--json").report
    assert (report["patient"]["vllm"], report["patient"]["gpu"]) == ("0.11.0", "NVIDIA H100 80GB HBM3")


def test_a_variable_of_the_command_is_believed_before_the_shell_s(doctor: Doctor, env: str) -> None:
    report = doctor(env, "--command", "NCCL_P2P_DISABLE=0 vllm serve m -tp 2", "--json").report
    assert "nccl-slow-transport" not in {finding["rule"] for finding in report["findings"]}
    report = doctor(env, "--command", "vllm serve m -tp 2", "--json").report
    [found] = [finding for finding in report["findings"] if finding["rule"] == "nccl-slow-transport"]
    assert {evidence["from"] for evidence in found["evidence"]} <= {"collect-env", "cmdline", "computed"}


def test_it_is_believed_before_a_name(doctor: Doctor, env: str) -> None:
    report = doctor(env, "--command", "vllm serve m", "--gpu", "A100-SXM4-80GB", "--json").report
    assert report["patient"]["gpu"] == "NVIDIA H100 80GB HBM3"
    [named] = [source for source in report["sources"] if source["kind"] == "gpu-name"]
    assert "--gpu is not used: collect-env reports which GPU it is (NVIDIA H100 80GB HBM3)" in named["notes"]


def test_secrets_of_the_shell_stay_there(doctor: Doctor, env: str) -> None:
    ran = doctor(env, "--command", "vllm serve m", "--json")
    assert "planted-key-of-a-test" not in ran.out + ran.err


def test_amd_has_its_links_from_rocm_smi(doctor: Doctor, env: str) -> None:
    Path(env).write_text(AMD.replace("XGMI", "PCIE"))
    report = doctor(env, "--command", "vllm serve m -tp 2", "--json").report
    assert "pcie-no-nvlink" in {finding["rule"] for finding in report["findings"]}


def test_a_file_of_the_doctor_s_is_told(doctor: Doctor, env: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    report.write_text(doctor("--command", "vllm serve m --enforce-eager", "--json").out)
    ran = doctor(str(report), "--text")
    assert (ran.code, ran.out) == (3, "")
    assert "is a report of" in ran.err
    assert "it is not judged again" in ran.err

"""The command on a command line alone, and beside a server."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests import paths
from tests.cli.test_main import SECRET, Doctor, doctor, one_line, recorded
from tests.paths import LOGS, NVIDIA_SMI
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.sources.host import process
from vllm_doctor.vllm import flags as catalogue

__all__ = ["doctor"]


@pytest.fixture(autouse=True)
def nobody_looks_for_servers(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(kernel: object) -> None:
        raise AssertionError("a command needs no server")

    monkeypatch.setattr(process, "find", find)


def rules(report: dict[str, Any]) -> dict[str, str]:
    return {finding["rule"]: finding["severity"] for finding in report["findings"]}


def test_a_command_alone(doctor: Doctor) -> None:
    ran = doctor("--command", "vllm serve m --enforce-eager --max-num-seqs 256", "--json")
    report = ran.report
    assert (ran.code, ran.err, report["verdict"], report["error"]) == (1, "", "warning", None)
    assert rules(report)["enforce-eager"] == "warning"
    assert report["command"]["was"] == ["vllm", "serve", "m", "--enforce-eager", "--max-num-seqs", "256"]
    assert report["patient"]["model"] == "m"
    assert [(source["kind"], source["target"], source["scrapes"]) for source in report["sources"]] == [
        ("command", "--command: line 1", 0)
    ]
    assert report["vitals_unknown"]["requests_running"] == "not-in-command"


@pytest.mark.parametrize(("more", "asks"), [([], True), (["--gpu", "H200"], False)])
def test_what_only_a_running_server_shows_is_said_once(doctor: Doctor, more: list[str], asks: bool) -> None:
    ran = doctor("--command", "vllm serve m --enforce-eager", "--text", *more)
    missing = ran.out[ran.out.index("Not checked") :]
    assert missing.startswith("Not checked  What only a running server shows (")
    assert not {"not-in-command", "not-local", "log:"} & set(missing.split())
    assert ("--gpu 8xH100" in missing) == asks


def test_a_command_with_nothing_to_find_is_not_ok(doctor: Doctor) -> None:
    ran = doctor("--command", "vllm serve m", "--json")
    assert (ran.code, ran.err, ran.report["verdict"]) == (3, "", "unknown")
    assert ran.report["headline"] == "Nothing was measured: only its command was checked"
    assert ran.report["findings"] == []


def test_a_command_that_will_blind_the_doctor(doctor: Doctor) -> None:
    ran = doctor("--command", "vllm serve m --disable-log-stats", "--json")
    assert (ran.code, ran.report["headline"]) == (1, "Statistics are switched off, so nothing can be measured")
    assert ran.report["command"]["now"] == ["vllm", "serve", "m"]


def test_statistics_that_are_off_hide_nothing_of_a_command(doctor: Doctor) -> None:
    ran = doctor("--command", "vllm serve m --disable-log-stats --enforce-eager", "--json")
    assert (ran.code, ran.report["verdict"]) == (1, "warning")
    assert rules(ran.report) == {"stats-disabled": "warning", "enforce-eager": "warning"}
    assert ran.report["command"]["now"] == ["vllm", "serve", "m"]  # both at once


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_no_server_is_claimed_to_be_seen(form: str, doctor: Doctor) -> None:
    for flags, code in (("", 3), (" --enforce-eager", 1)):
        ran = doctor("--command", f"vllm serve m{flags} --dtype $DT", "--format", form)
        assert ran.code == code
        assert "nothing was measured" in ran.out
        assert "no answer" not in ran.out
        assert "the value of" in " ".join(ran.out.split())


def test_what_a_broken_line_loses_is_told(doctor: Doctor) -> None:
    ran = doctor("--command", "vllm serve m \\ # first\n  --enforce-eager", "--text")
    said = " ".join(ran.out.split())
    assert ran.code == 1
    assert "line 1: a comment after the backslash" in said
    assert "never reaches vLLM: --enforce-eager" in said


def test_a_file_with_several_commands(doctor: Doctor) -> None:
    report = doctor("--command", paths.COMMANDS / "compose.yaml", "--json").report
    assert [source["target"].rpartition(": ")[2] for source in report["sources"]] == [
        "services.chat.command",
        "services.embed.command",
    ]
    assert report["patient"]["vllm"] == "0.11.0"
    [finding] = [finding for finding in report["findings"] if finding["rule"] == "enforce-eager"]
    assert finding["subject"]["server"].endswith("services.embed.command")


def test_a_manifest_tells_what_the_host_would(doctor: Doctor) -> None:
    manifest = "docker run --shm-size 64m vllm/vllm-openai:v0.11.0 --model m -tp 4"
    report = doctor("--command", manifest, "--json").report
    [finding] = [finding for finding in report["findings"] if finding["rule"] == "shm-small"]
    assert {evidence["from"] for evidence in finding["evidence"]} == {"manifest"}


H100 = ("--gpu", "H100", "--json")


def test_a_gpu_that_is_named(doctor: Doctor) -> None:
    ran = doctor("--command", "vllm serve m --max-num-seqs 256", "--gpu", "8xH100", "--json")
    [finding] = ran.report["findings"]
    assert (finding["rule"], finding["severity"]) == ("max-num-seqs-lowered", "info")
    [remedy] = finding["remedies"]
    assert remedy["unset"] == ["--max-num-seqs"]
    assert ran.report["patient"]["gpu"] == "H100 80GB HBM3"
    assert [(source["kind"], source["target"]) for source in ran.report["sources"]][1:] == [
        ("gpu-name", "--gpu 8xH100")
    ]
    assert (ran.code, ran.report["headline"]) == (3, "Nothing was measured: only its command was checked")


def test_a_gpu_that_was_seen_goes_before_one_that_is_named(doctor: Doctor) -> None:
    smi = NVIDIA_SMI / "h100-driver-550.xml"
    command = "vllm serve m --max-num-batched-tokens 4096"
    report = doctor("--command", command, "--gpu", "L4", "--nvidia-smi", smi, "--json").report
    assert rules(report)["batched-tokens-lowered"] == "info"
    [named] = [source for source in report["sources"] if source["kind"] == "gpu-name"]
    assert "--gpu is not used: the driver reports which GPU it is" in named["notes"][0]
    assert report["patient"]["gpu"].startswith("NVIDIA H100")


def test_a_gpu_that_is_named_beside_a_log(doctor: Doctor) -> None:
    log = LOGS / "preemption.log.gz"
    assert doctor(log, "--gpu", "H100", "--json").report["patient"]["gpu"] == "H100 80GB HBM3"
    assert doctor(log, "--json").report["patient"]["gpu"] is None


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("A100", "'A100' is taken for A100-SXM4-80GB; there is A100 80GB PCIe, A100-SXM4-40GB, A100-PCIE-40GB, too"),
        ("H101", "GPU 'H101' is not in the table; nearest: H100"),
    ],
)
def test_what_a_gpus_name_leaves_open_is_told_and_the_rest_is_judged(doctor: Doctor, name: str, note: str) -> None:
    ran = doctor("--command", "vllm serve m --enforce-eager", "--gpu", name, "--json")
    assert "enforce-eager" in rules(ran.report)
    [named] = [source for source in ran.report["sources"] if source["kind"] == "gpu-name"]
    assert named["notes"][0].startswith(note)
    assert note in " ".join(doctor("--command", "vllm serve m --enforce-eager", "--gpu", name).out.split())


def test_a_named_gpu_alone_is_no_patient(doctor: Doctor) -> None:
    ran = doctor("http://127.0.0.1:1", "--gpu", "H100", "--json")
    assert (ran.code, ran.report["error"]["kind"]) == (3, "unreachable")


def test_cures_are_checked_for_the_vllm_that_judges(doctor: Doctor) -> None:
    """That of the image, or the newest known; so the corrected command has them."""
    for command, version in (
        ("vllm serve m --dtype float32", catalogue.newest()),
        ("docker run vllm/vllm-openai:v0.11.0 --model m --dtype float32", "0.11.0"),
        ("docker run vllm/vllm-openai:v0.99.0 --model m --dtype float32", catalogue.newest()),
    ):
        report = doctor("--command", command, "--json").report
        [finding] = [finding for finding in report["findings"] if finding["rule"] == "dtype-float32"]
        assert finding["remedies"][0]["validated_for"] == version
        assert report["command"]["now"][-2:] == ["--dtype", "auto"]


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        ("v1.99.0", f"1.99.0: judged as {catalogue.newest()}, the newest known"),
        ("v0.32.1.dev5", "0.32.1.dev5: judged as 0.32.0, the release before it"),
        ("v0.32.0rc1", "0.32.0rc1: judged as 0.32.0, the release it leads to"),
        ("v0.3.0", "0.3.0: nothing is known of vLLM before 0.4.3"),
    ],
)
def test_a_version_that_is_not_known_is_said_to_be_judged_as_another(tag: str, said: str, doctor: Doctor) -> None:
    report = doctor("--command", f"docker run vllm/vllm-openai:{tag} --model m --max-num-seqs 256", *H100).report
    assert said in report["sources"][0]["notes"]
    assert ("max-num-seqs-lowered" in rules(report)) is (tag != "v0.3.0")


def test_too_few_gpus_and_cores(doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "pod.yaml"
    path.write_text(
        "apiVersion: v1\nkind: Pod\nspec:\n  containers:\n  - image: vllm/vllm-openai:v0.32.0\n"
        "    args: [--model, m, -tp, '4']\n    resources: {limits: {nvidia.com/gpu: 2, cpu: 2}}\n",
        "utf-8",
    )
    ran = doctor("--command", path, "--json")
    assert ran.code == 2
    assert rules(ran.report) == {"gpus-short": "critical", "cpu-underprovisioned": "info", "shm-small": "info"}
    [cores] = [finding for finding in ran.report["findings"] if finding["rule"] == "cpu-underprovisioned"]
    assert "1 API server + 1 engine core + 4 workers = 6 physical cores wanted; 2 may be used" in cores["here"]


def test_a_model_of_this_machine(doctor: Doctor, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"torch_dtype": "bfloat16", "hidden_size": -1}', "utf-8")
    with open(tmp_path / "model.safetensors", "wb") as weights:
        weights.truncate(16 * 2**30)
    report = doctor("--command", f"vllm serve {tmp_path} -tp 4 --dtype half", *H100).report
    assert rules(report) == {"dtype-cast": "info", "tp-too-large": "info"}
    [tp] = [finding for finding in report["findings"] if finding["rule"] == "tp-too-large"]
    assert tp["remedies"][0]["set"] == {"--tensor-parallel-size": 1, "--data-parallel-size": 4}
    assert any("cannot be right" in note for note in report["sources"][0]["notes"])


def test_a_file_of_10_megabytes(doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    path.write_text("services:\n" + "  s: {command: m}\n" * 600_000, "utf-8")
    assert "larger than 1 MB" in one_line(doctor("--command", path))


def test_anchors_and_merge_keys_are_read(doctor: Doctor) -> None:
    text = (
        "x-vllm: &it {image: 'vllm/vllm-openai:v0.32.0', command: [--model, m, --enforce-eager]}\n"
        "services: {s: {<<: *it}}"
    )
    assert rules(doctor("--command", text, "--json").report) == {"enforce-eager": "warning"}


@pytest.mark.parametrize("value", ["0", "-1", "1e400", "nan", "x", "99999999999999999999"])
def test_numbers_that_are_none_crash_nothing(value: str, doctor: Doctor) -> None:
    names = (
        "max-num-seqs", "max-num-batched-tokens", "max-model-len", "gpu-memory-utilization", "cpu-offload-gb",
        "tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size", "block-size",
    )  # fmt: skip
    given = " ".join(f"--{name} {value}" for name in names)
    ran = doctor("--command", f"vllm serve m {given}", *H100)
    assert ran.code in (1, 2, 3)
    assert ran.report["error"] is None


@pytest.mark.usefixtures("hurried")
def test_beside_a_server(doctor: Doctor) -> None:
    with recorded("healthy-busy") as server:
        report = doctor(server.url, "--command", "vllm serve m --enforce-eager", "--json").report
    assert [source["kind"] for source in report["sources"]][-1] == "command"
    assert rules(report)["enforce-eager"] == "warning"
    assert report["command"]["was"] == ["vllm", "serve", "m", "--enforce-eager"]
    assert report["vitals"]["requests_running"] is not None
    assert report["patient"]["vllm"] != "0.11.0"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--command", "ls -l"],
        ["--command", "vllm bench serve"],
        ["--command", "no-such-file"],
        ["--command", "'vllm serve m"],
        ["--command", "a: [1"],
        ["--command", "a: !x 1"],
        ["--command", "\x1b[31mvllm serve"],
        ["--command", ""],
        ["--command", str(paths.COMMANDS)],
        ["--command"],
        ["--command", "-", "-"],
        ["--command", "vllm serve m", "--gpu", ""],
        ["--command", "vllm serve m", "--gpu", "0xH100"],
        ["--command", "vllm serve m", "--gpu", "\x1b[31m"],
        ["--command", "vllm serve m", "--gpu"],
        ["--command", "vllm chat"],
        [
            "--command",
            "a: &a [x, x, x, x, x, x, x, x]\n"
            + "".join(f"{new}: &{new} [{', '.join(['*' + old] * 9)}]\n" for old, new in pairwise("abcdefg")),
        ],
        ["--command", "a: &a {b: *a}\nservices: {s: {command: m}}"],
        ["--command", "services: {s: {<<: 3, command: m}}"],
        ["--command", "[" * 1000],
        ["--command", "services: {s: {command: [!!python/name:os.system x]}}"],
    ],
    ids=lambda arguments: " ".join(arguments)[-40:],
)
def test_what_cannot_be_judged_is_one_line(arguments: list[str], doctor: Doctor, tmp_path: Path) -> None:
    output = tmp_path / "report"
    line = one_line(doctor(*arguments, "-o", output))
    assert not output.exists()
    ran = doctor(*arguments, "--json")
    assert (ran.code, ran.report["verdict"]) == (3, "unknown")
    assert ran.err == line


COMMANDS = [
    f"HF_TOKEN={SECRET} AWS_SECRET_ACCESS_KEY={SECRET} vllm serve m --api-key {SECRET}",
    f"export X={SECRET}; docker run -e HF_TOKEN={SECRET} -eY={SECRET} vllm/vllm-openai m --hf-token {SECRET}",
    f"vllm serve m –api-key {SECRET} '--api-key {SECRET}' --served-model-name ${{X:-{SECRET}}}",
    f"vllm serve m \\ # x\n --api-key {SECRET}\n --hf-token={SECRET}",
    f"services: {{a: {{image: vllm/vllm-openai, environment: {{PASSWORD: {SECRET}}}, command: m --api-key {SECRET}}}}}",
    f"kind: Pod\napiVersion: v1\nspec: {{containers: [{{command: [vllm, serve, m, --api-key, $(K)],"
    f" env: [{{name: K, value: {SECRET}}}]}}]}}",
    f"[Service]\nEnvironment=A_SECRET={SECRET}\nExecStart=vllm serve m --api-key {SECRET} --dtype ${{A_SECRET}}",
    f"model: m\napi-key: {SECRET}\nhf-token: {SECRET}\n",
    f"echo {SECRET}",
    f"vllm serve '{SECRET}",
    f"a: [{SECRET}",
    f"services: {{a: {{command: !x {SECRET}}}}}",
]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("command", COMMANDS, ids=range(len(COMMANDS)))
def test_a_secret_is_never_told(command: str, form: str, doctor: Doctor) -> None:
    ran = doctor("--command", command, "--format", form)
    assert SECRET not in ran.out + ran.err


@pytest.mark.parametrize("form", FORMATS)
def test_nothing_that_a_terminal_obeys_comes_through(form: str, doctor: Doctor, tmp_path: Path) -> None:
    path = tmp_path / "deploy\x1b[31m.yaml"
    path.write_text(
        "kind: \"Pod\\e[31m\"\napiVersion: v1\nmetadata: {name: \"a\\nb\\e]0;x\\a\"}\n"
        "spec:\n  containers:\n  - image: \"vllm/vllm\\e:v1.2.3\"\n"
        "    args: [\"--model\", \"m\\e[2J\", \"--dtype\", \"x\\r\\ny\", \"--\\e[31m 1\", \"$(\\e)\"]\n"
        "    env: [{name: \"A\\e\", value: x}, {name: VLLM_X, value: \"\\e[31m\"}]\n",
        "utf-8",
    )  # fmt: skip
    ran = doctor("--command", path, "--format", form)
    assert ran.code in (1, 3)
    assert "\x1b" not in ran.out + ran.err
    assert all(char.isprintable() or char == "\n" for char in ran.out + ran.err)


def test_a_flag_with_a_value_of_elsewhere_is_left_out_of_the_corrected_command(doctor: Doctor) -> None:
    ran = doctor("--command", 'vllm serve "$MODEL" --swap-space $SWAP --watermark 0.1', "--json")
    assert ran.report["command"]["now"] == ["vllm", "serve", "$MODEL", "--watermark", "0.1"]
    text = doctor("--command", 'vllm serve "$MODEL" --swap-space $SWAP --watermark 0.1', "--text").out
    assert 'vllm serve "$MODEL" --watermark 0.1' in text
    assert "--format patch" in text


def test_what_stands_in_a_config_file_is_not_told_to_be_changed_on_the_command_line(
    doctor: Doctor, tmp_path: Path
) -> None:
    path = tmp_path / "server.yaml"
    path.write_text("model: m\nswap-space: 4\nwatermark: 0.1\n", "utf-8")
    out = doctor("--command", path, "--text").out
    assert "with these changes, to fix flag-unknown:\n              -  --swap-space 4" in out


def test_a_command_without_a_version_tells_which_releases_have_its_flags(doctor: Doctor) -> None:
    command = "python -m vllm.entrypoints.openai.api_server --model m --swap-space 16"
    assert "m · vLLM up to 0.17.1, by --swap-space · nothing was measured" in doctor("--command", command, "--text").out
    ran = doctor("--command", command, "--json")
    assert (ran.code, ran.report["patient"]["vllm"]) == (3, None)
    assert ran.report["patient"]["vllm_window"] == "up to 0.17.1, by --swap-space"
    assert "flag-unknown" not in {finding["rule"] for finding in ran.report["findings"]}


def test_flags_that_no_release_has_together_are_named(doctor: Doctor) -> None:
    ran = doctor("--command", "vllm serve m --swap-space 16 --watermark 0.1", "--text")
    assert ran.code == 1
    says = "No release has all flags of the command: --swap-space was gone in 0.18.0, --watermark came in 0.24.0."
    assert says in " ".join(ran.out.split())


def test_a_flag_of_a_development_build_is_no_emergency(doctor: Doctor) -> None:
    flag = "--enable-such-statistics"
    assert doctor("--command", f"vllm serve m {flag}").code == 1
    assert doctor("--command", f"docker run vllm/vllm-openai:v0.11.1rc2 m {flag}").code == 1
    assert doctor("--command", f"docker run vllm/vllm-openai:v0.11.0 m {flag}").code == 2

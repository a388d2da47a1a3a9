"""A secret of each kind is planted in each source, and looked for in every output: as it is, and encoded."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

import pytest
from textual.pilot import Pilot

from tests.cli.test_main import Doctor, doctor
from tests.fake_prometheus import FakePrometheus, targets
from tests.planted import FLAGS, LABELS, LOG, SECRETS, SOURCES, found_in
from tests.serving import serving
from tests.tui.showing import run, shown, watched
from tests.tui.watching import TARGET, Pages
from tests.zstandard import texts_of
from vllm_doctor.cli.options import FORMATS
from vllm_doctor.launch.source import open_command
from vllm_doctor.model.kinds import SourceKind
from vllm_doctor.recording import archive
from vllm_doctor.session.source import Source
from vllm_doctor.tui.app import DoctorApp

__all__ = ["doctor"]


FILES = ("log", "Kubernetes", "command", "compose", "docker", "shell", "systemd")
"""How sources begin that are files alone: those are not watched."""


def test_what_looks_for_secrets_finds_them() -> None:
    for what, secret in SECRETS.items():
        assert what in found_in(f"x {secret} y")
        assert what in found_in(base64.b64encode(f"id:{secret}:z".encode()).decode())
        assert what in found_in(quote(f"{secret}=", safe=""))
    assert found_in("nothing in here") == []
    assert sorted(found_in(LOG)) == sorted(SECRETS)


@pytest.mark.parametrize("source", SOURCES)
def test_no_secret_leaves_in_any_format(source: str, tmp_path: Path, doctor: Doctor) -> None:
    with SOURCES[source](tmp_path) as words:
        at_once = () if source.startswith(FILES) else ("--window", "0")
        for form in FORMATS:
            ran = doctor(*words, "--format", form, *at_once)
            assert found_in(ran.out + ran.err) == [], form
        ran = doctor(*words, "--text", *at_once, "--strict", "-o", tmp_path / "report.txt")
        assert found_in((tmp_path / "report.txt").read_text() + ran.out + ran.err) == []


@pytest.mark.parametrize("share", [(), ("--share",)], ids=["", "shared"])
@pytest.mark.parametrize("source", SOURCES)
def test_no_secret_leaves_in_a_recording(source: str, share: Sequence[str], tmp_path: Path, doctor: Doctor) -> None:
    path = tmp_path / "r.tar.gz"
    with SOURCES[source](tmp_path) as words:
        for_a_moment = () if source.startswith(FILES) else ("--duration", "0.2")
        ran = doctor("record", *words, *share, "-o", path, *for_a_moment)
    assert found_in(ran.out + ran.err) == []
    if source == "URL that refuses":
        assert not path.exists()
        return
    assert ran.code == 0, ran.err
    found = archive.read(path)
    for name, text in texts_of(found).items():
        assert found_in(f"{name}\n{text}") == [], name
    masked = json.loads(found["recording.json"])["redacted"]
    never_read = ("URL", "header and token file", "environment", "nvidia-smi file")
    assert bool(masked) or source in never_read
    again = doctor(path, "--json")
    assert found_in(again.out + again.err) == []
    assert again.report["redacted"] == json.loads(found["report.json"])["redacted"]


# ---- the other commands, and the screens ----------------------------------------------------------------------------


def test_no_secret_leaves_in_a_comparison(tmp_path: Path, doctor: Doctor) -> None:
    with SOURCES["log"](tmp_path) as [log]:
        report = tmp_path / "before.json"
        report.write_text(doctor(log, "--json").out)
        command = ("--command", " ".join(map(str, ["vllm serve tiny", shlex.join(FLAGS)])))
        for form in ("text", "json"):
            ran = doctor("compare", report, log, *command, "--format", form)
            assert found_in(ran.out + ran.err) == [], form
            assert ran.out


def test_no_secret_leaves_from_a_fleet(doctor: Doctor) -> None:
    labelled = [{**target, **LABELS} for target in targets(2)]
    with serving(FakePrometheus(zip(labelled, ("preemption", "idle"), strict=True)).routes()) as server:
        url = server.url.replace("://", f"://alice:{SECRETS['a password in a URL']}@")
        for form in ("text", "json"):
            ran = doctor("fleet", url, "--format", form)
            assert found_in(ran.out + ran.err) == [], form
            assert "2" in ran.out


def test_no_secret_leaves_in_alerts(tmp_path: Path, doctor: Doctor) -> None:
    with SOURCES["metrics and model card"](tmp_path) as [url]:
        named = str(url).replace("://", f"://alice:{SECRETS['a password in a URL']}@")
        ran = doctor("alerts", "--url", named, "-o", tmp_path / "alerts")
    written = [path for path in (tmp_path / "alerts").rglob("*") if path.is_file()]
    assert written
    assert found_in(ran.out + ran.err + "\n".join(path.read_text() for path in written)) == []


@pytest.mark.parametrize(
    "words",
    [
        ["flags", "0.33.0", f"--hf-token={SECRETS['a Hugging Face token']}"],
        ["flags", "0.33.0", SECRETS["a GitHub token"]],
        ["flags", "0.33.0", "--api-key", SECRETS["a Stripe key"]],
        ["--api-key", SECRETS["an API key"]],
        ["fleet", f"http://alice:{SECRETS['a password in a URL']}@127.0.0.1:1/?api_key={SECRETS['an API key']}"],
        ["alerts", "--url", f"http://alice:{SECRETS['a password in a URL']}@127.0.0.1:1/?pwd={SECRETS['called pwd']}"],
        ["compare", f"http://alice:{SECRETS['a password in a URL']}@127.0.0.1:1", "x.json"],
        ["--command", f"vllm serve m --db-pass {SECRETS['called db_pass']} 'unbalanced"],
        ["rules", "--check", f"/nowhere/{SECRETS['a GitLab token']}"],
    ],
    ids=lambda words: words[0],
)
def test_no_secret_of_the_doctors_own_command_line_is_repeated(words: Sequence[str], doctor: Doctor) -> None:
    ran = doctor(*words)
    assert found_in(ran.out + ran.err) == []
    assert ran.out + ran.err


def test_no_secret_is_on_a_screen_or_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    command = open_command(shlex.join(["vllm", "serve", "tiny", "--num-gpu-blocks-override", "80", *FLAGS]))
    start = command.starts[0]
    written = Source(SourceKind.COMMAND, "--command", TARGET, lambda: command.examine(start, TARGET))
    labels = ",".join(f'{name}="{value}"' for name, value in LABELS.items())
    pages = Pages("preemption", edit=lambda page: page.replace('engine="0"', f'engine="0",{labels}'))
    view_model = watched(pages, written, seconds=6)
    seen: list[str] = []

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        for key in (
            "1",
            "c",
            "enter",
            "y",
            "escape",
            "j",
            "y",
            "2",
            "y",
            "3",
            "y",
            "4",
            "5",
            "question_mark",
            "escape",
            "1",
            "w",
        ):
            await pilot.press(key)
            await pilot.pause()
            seen.extend((shown(app), app.clipboard))

    run(steps, view_model, size=(200, 60))
    kept = [path.read_text() for path in tmp_path.rglob("*") if path.suffix in (".sh", ".md")]
    assert any(text.startswith("vllm serve") and "[masked]" in text for text in kept), "the cure of what was planted"
    seen += kept
    assert found_in("\n".join(seen)) == []


# ---- names, in what is shared ---------------------------------------------------------------------------------------

NAMES = ["gpu-box-17", "acme-corp.internal", "10.31.7.9", "fd12:3456::9", "/home/jdoe", "jdoe", "jane.doe@acme.com",
         "/data/secret-project/llama-ft"]  # fmt: skip
SHARED_LOG = """\
INFO 11-20 10:00:00 [api_server.py:100] vLLM API server version 0.32.0
INFO 11-20 10:00:01 [utils.py:233] non-default args: {'model': '/data/secret-project/llama-ft', 'host': 'gpu-box-17'}
INFO 11-20 10:00:02 [x.py:1] init_method=tcp://10.31.7.9:5000, http://acme-corp.internal:80/x, [fd12:3456::9]
INFO 11-20 10:00:02 [x.py:1] file /home/jdoe/venv/lib/python3.12/site-packages/vllm/x.py of jane.doe@acme.com
INFO 11-20 10:00:03 [x.py:1] gpu-box-17 is up, 10.31.7.9 too; docs: https://docs.vllm.ai/en/latest on 127.0.0.1
INFO 11-20 10:00:10 [loggers.py:236] Engine 000: Avg prompt throughput: 770.0 tokens/s, Avg generation throughput: \
2768.0 tokens/s, Running: 17 reqs, Waiting: 7 reqs, GPU KV cache usage: 99.0%, Prefix cache hit rate: 0.0%
"""


def shared_log(folder: Path, doctor: Doctor, *words: str) -> dict[str, bytes]:
    (folder / "vllm.log").write_text(SHARED_LOG)
    assert doctor("record", folder / "vllm.log", *words, "-o", folder / "r.tar.gz").code == 0
    return archive.read(folder / "r.tar.gz")


def test_what_is_shared_names_nobody(tmp_path: Path, doctor: Doctor) -> None:
    found = shared_log(tmp_path, doctor, "--share")
    text = "\n".join(texts_of(found).values())
    assert [name for name in NAMES if name in text] == []
    assert str(tmp_path) not in text
    log = found["1-log/000.log"].decode()
    assert "site-packages/vllm/x.py" in log  # whose code it is helps, and tells nobody's name
    assert "https://docs.vllm.ai/en/latest on 127.0.0.1" in log
    told = {item["what"] for item in json.loads(found["recording.json"])["redacted"]}
    assert told >= {"host", "address", "user", "path"}


def test_the_same_name_has_the_same_pseudonym(tmp_path: Path, doctor: Doctor) -> None:
    log = shared_log(tmp_path, doctor, "--share")["1-log/000.log"].decode().splitlines()
    host = re.search(r"'host': '(host-\d+)'", log[1])
    address = re.search(r"tcp://(address-\d+):5000", log[2])
    assert host is not None
    assert address is not None
    assert f"{host[1]} is up, {address[1]} too" in log[4]


def test_the_verdict_is_the_same(tmp_path: Path, doctor: Doctor) -> None:
    plain, shared = (json.loads(shared_log(tmp_path, doctor, *words)["report.json"]) for words in ((), ("--share",)))
    assert (plain["verdict"], plain["rules"], plain["vitals"]) == (shared["verdict"], shared["rules"], shared["vitals"])


def test_without_it_names_stay(tmp_path: Path, doctor: Doctor) -> None:
    text = shared_log(tmp_path, doctor)["1-log/000.log"].decode()
    assert [name for name in NAMES if name not in text] == []

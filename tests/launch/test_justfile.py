from __future__ import annotations

from vllm_doctor.launch.justfile import is_it
from vllm_doctor.launch.source import notes, read
from vllm_doctor.launch.start import Form

TEXT = """\
set dotenv-load
models := env_var_or_default("MODELS", "/srv/models")
model := models / "m" + "-8b"
args := "--seed 1"
token := env("HF_TOKEN", "abcdef")

# serve it
serve tp="2" +more="":
    #!/usr/bin/env bash
    @echo {{token}}
    vllm serve {{model}} \\
      --tensor-parallel-size {{tp}} {{args}} \\
      --port {{port}}

test: serve
    curl localhost
"""


def test_recipes() -> None:
    [start] = read(TEXT)
    assert (start.form, start.place) == (Form.JUSTFILE, "line 11")
    assert start.command.model == "/srv/models/m-8b"
    assert start.command.flags == {"--tensor-parallel-size": 2.0, "--seed": 1.0}
    assert start.unknown_flags == {"--port"}
    assert "read with the defaults of MODELS, tp, which may be set to others where just runs" in notes(start)
    assert "abcdef" not in repr(start)


def test_by_the_name_of_its_file() -> None:
    assert is_it("serve:\n  vllm serve m\n", "ops/justfile")
    assert not is_it("serve:\n  vllm serve m\n", "ops/serve.yaml")

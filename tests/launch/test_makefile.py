from __future__ import annotations

from vllm_doctor.launch.source import notes, read
from vllm_doctor.launch.start import Form

TEXT = """\
-include .env
MODEL ?= Org/Model-8B  # the small one
TP := 2
ARGS = --max-model-len 8192 \\
       --seed $(SEED)
SEED = 7
ifdef BIG
LEN = 1
endif
API_KEY = abcdef
.PHONY: serve

serve: install
\t@echo starting
\t@CUDA_VISIBLE_DEVICES=0,1 $(BIN)/vllm serve $(MODEL) \\
\t  --tensor-parallel-size $(TP) $(ARGS) \\
\t  --max-num-seqs $(LEN) --api-key $(API_KEY) --port $${PORT}

other:
\tdocker run vllm/vllm-openai:v0.10.0 --model $(strip $(MODEL)) --seed $(shell date)
"""


def test_recipes() -> None:
    first, second = read(TEXT)
    assert (first.form, first.place) == (Form.MAKEFILE, "line 15")
    assert first.command.model == "Org/Model-8B"
    assert first.command.flags == {
        "--tensor-parallel-size": 2.0,
        "--max-model-len": 8192.0,
        "--seed": 7.0,
        "--api-key": "[masked]",
    }
    assert first.unknown_flags == {"--max-num-seqs", "--port"}
    assert first.environment == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert "read with the defaults of MODEL, which may be set to others where make runs" in notes(first)
    assert "abcdef" not in repr(first)
    assert (second.form, second.version) == (Form.DOCKER_RUN, "0.10.0")
    assert second.command.model == "Org/Model-8B"
    assert "--seed" in second.unknown_flags

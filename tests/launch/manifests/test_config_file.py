from __future__ import annotations

from tests.launch.manifests.written import of_file
from tests.paths import COMMANDS
from vllm_doctor.launch.start import Form


def test_a_config_file() -> None:
    [start] = of_file("config.yaml")
    assert (start.form, start.command.model, start.is_open) == (Form.CONFIG, "org/m", False)
    assert start.argv == ("vllm", "serve", "--config", str(COMMANDS / "config.yaml"))
    flags = {flag: value for flag, value in start.command.flags.items() if flag != "--config"}
    assert flags == {
        "--model": "org/m",
        "--served-model-name": "a b",
        "--tensor-parallel-size": 2.0,
        "--max-num-seqs": 128.0,
        "--enforce-eager": True,
        "--enable-prefix-caching": False,
        "--api-key": "[masked]",
        "--speculative-config": '{"method": "ngram", "num_speculative_tokens": 3}',
    }

"""An upgrade of vLLM, as people write it."""

from __future__ import annotations

import time

import pytest

from vllm_doctor.sources.bench import prose_upgrade
from vllm_doctor.sources.bench.prose_upgrade import Upgrade


@pytest.mark.parametrize(
    ("text", "upgrade"),
    [
        (
            "a performance regression after upgrading the vLLM image from `0.21-b3.1` to `0.26-b1`.",
            Upgrade("0.21-b3.1", "0.26-b1", True),
        ),
        ("I updated vLLM from v0.8.4 to v0.9.0.1 and all is well", None),
        ("I updated vLLM from v0.8.4 to v0.9.0 and all is as it was", Upgrade("0.8.4", "0.9.0", False)),
        ("0.8.5 -> 0.9.1: throughput drops", Upgrade("0.8.5", "0.9.1", True)),
        ("0.8.5.post1 works fine, but 0.9.1 is much slower", Upgrade("0.8.5.post1", "0.9.1", True)),
        ("Regression between 0.8.5 and 0.9.1", Upgrade("0.8.5", "0.9.1", True)),
        ("upgraded torch from 0.8.4 to 0.9.0", None),
        ("moved from 0.9.0 to 0.8.4", None),
        ("from 0.8.4 to 0.9.0 and then, upgrading from 0.9.0 to 0.10.0, slow", Upgrade("0.9.0", "0.10.0", True)),
        ("upgrading from 0.8.4 to 0.9.0; later from 0.9.0 to 0.10.0. Migrating from 0.8.4 to 0.10.0", None),
        ("--gpu-memory-utilization 0.85 is fine, 0.95 is slow", None),
        ("0.85 ok, 0.95 slow", None),
        ("changed the temperature from 0.1 to 0.3 and it is slow", None),
        ("with 0.1 it is fine, with 0.3 slow", None),
        ("vLLM 0.21 is fine, 0.26 is slow", Upgrade("0.21", "0.26", True)),
        ("", None),
    ],
)
def test_which_upgrade(text: str, upgrade: Upgrade | None) -> None:
    assert prose_upgrade.read(text) == upgrade


@pytest.mark.parametrize("piece", ["0.1 ok 0.2 slow ", "upgrade from 0.1 to 0.2 ", "from ", "0.1", "`*0.1.1-b"])
def test_hostile_texts_take_little_time(piece: str) -> None:
    started = time.process_time()
    prose_upgrade.read(piece * (300_000 // len(piece)))
    assert time.process_time() - started < 2

"""Frozen values as what JSON holds, and back."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from tests.sources.host.fake_proc import FakeProc
from vllm_doctor.model.plain import of_plain, plain
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu.gpu import GpuProcess, GpuSample
from vllm_doctor.sources.host.host import Host, HostSample
from vllm_doctor.sources.host.kernel import Kernel
from vllm_doctor.sources.host.process import Member, ServerProcess


def through_json(kind: Any, value: Any) -> Any:
    return of_plain(kind, json.loads(json.dumps(plain(kind, value), allow_nan=False)))


@pytest.mark.parametrize(
    "reading",
    [
        Known(0.5),
        Known(math.inf),
        Known(3),
        Known(True),
        Known("spread", origin="proc"),
        Known(1.0, 0.5, 2.0),
        Unknown(Reason.DENIED),
    ],
)
def test_a_reading(reading: Reading) -> None:
    assert through_json(Reading, reading) == reading


def test_this_host(tmp_path: Path) -> None:
    sample = Host(ServerProcess(os.getpid(), (Member(os.getpid(), "worker", "", 0),)), Kernel()).sample()
    assert through_json(HostSample, sample) == sample
    nothing = Host(ServerProcess(1), FakeProc(tmp_path).kernel()).sample()
    assert through_json(HostSample, nothing) == nothing


@pytest.mark.parametrize("processes", [(), (GpuProcess(7, "x", Known(1e9)), GpuProcess(8)), Reason.DENIED])
def test_a_gpu(processes: tuple[GpuProcess, ...] | Reason) -> None:
    samples = (GpuSample(0, "GPU-1", 1.5, utilization=Known(0.9), processes=processes),)
    assert through_json(tuple[GpuSample, ...], samples) == samples


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (Reading, None),
        (Reading, [7, []]),
        (Reading, ["1", ["x"]]),
        (Reading, [0, [[0, 1.0], [1, None]]]),
        (HostSample, [1.0]),
        (GpuSample, {"index": 0}),
        (tuple[GpuSample, ...], 5),
        (float, "many"),
        (float, True),
        (str, 5),
        (Reason, "no-such-reason"),
    ],
)
def test_what_no_value_became_is_refused(kind: Any, told: Any) -> None:
    with pytest.raises((ValueError, TypeError, IndexError)):
        of_plain(kind, told)

"""Traces that are made for a test: a device's timeline as a few lines, in the format of torch's profiler."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GEMM = "nvjet_tst_64x64_64x16_2x1_2cta_v_bz_bias_TNT"
ALL_REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
FLASH = "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4> >(flash::Flash_fwd_params)"


@dataclass
class Made:
    """A trace as it grows. Times are microseconds."""

    rank: int = 0
    world: int = 1
    events: list[dict[str, Any]] = field(default_factory=list)
    _correlation: int = 0

    def launch(
        self, at: float, *kernels: tuple[str, float, float], call: str = "cudaLaunchKernel", stream: int = 7
    ) -> None:
        """A call at this time, and what it makes run: (name, start, length)."""
        self._correlation += 1
        args = {"correlation": self._correlation}
        self.add("cuda_runtime", call, at, 4.0, args)
        for name, start, length in kernels:
            self.add("kernel", name, start, length, {**args, "stream": stream, "device": 0}, tid=stream)

    def copy(self, at: float, start: float, length: float) -> None:
        self._correlation += 1
        args = {"correlation": self._correlation}
        self.add("cuda_runtime", "cudaMemcpyAsync", at, 4.0, args)
        self.add("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", start, length, {**args, "stream": 8})

    def step(self, at: float, length: float, context: int = 0, generation: int = 8) -> None:
        name = f"execute_context_{context}({context * 100})_generation_{generation}({generation})"
        self.add("user_annotation", name, at, length, {})

    def stacks(self, count: int = 200) -> None:
        for place in range(count):
            self.add("python_function", f"model.py({place}): forward", float(place), 1.0, {})

    def add(self, cat: str, name: Any, ts: Any, dur: Any, args: Any, tid: int = 1) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur, "args": args}
        )

    def document(self) -> dict[str, Any]:
        return {
            "schemaVersion": 1,
            "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],
            "distributedInfo": {"backend": "nccl", "rank": self.rank, "world_size": self.world},
            "traceEvents": self.events,
        }

    def write(self, path: Path) -> Path:
        text = json.dumps(self.document())
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return path


def busy(steps: int = 5, kernels: int = 10, rank: int = 0, world: int = 1, late: float = 0.0) -> Made:
    """Steps of 1 ms from graphs, with no gap; `late`: microseconds by which this rank comes late to its all-reduce."""
    made = Made(rank, world)
    for step in range(steps):
        at = 1000.0 * step
        made.step(at, 200.0)
        each = (900.0 + late) / kernels
        run = [(GEMM, at + 300 + each * place, each) for place in range(kernels)]
        if world > 1:
            run.append((ALL_REDUCE, at + 1200 + late, 100.0 - late))
        else:
            run.append((FLASH, at + 1200, 100.0))
        made.launch(at + 50, *run, call="cudaGraphLaunch")
    return made


def eager(steps: int = 5, kernels: int = 10, gap: float = 60.0, length: float = 20.0) -> Made:
    """Each kernel is launched only when the one before has ended."""
    made = Made()
    at = 0.0
    for _ in range(steps):
        made.step(at, (gap + length) * kernels)
        for _ in range(kernels):
            made.launch(at + gap - 10, (GEMM, at + gap, length))
            at += gap + length
    return made


PROCESS = 4711 << 24


def export(path: Path, made: Made, device: int = 0) -> Path:
    """The events of a made trace as an export of Nsight Systems: its tables and units."""
    strings: dict[str, int] = {}

    def number(text: str) -> int:
        return strings.setdefault(text, len(strings) + 1)

    with closing(sqlite3.connect(path)) as file, file:
        file.executescript(
            """
            CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
              correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER,
              correlationId INTEGER, globalPid INTEGER, copyKind INTEGER);
            CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
              correlationId INTEGER, nameId INTEGER);
            CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER);
            CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
            CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
            """
        )
        for event in made.events:
            start, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)
            name, key = event["name"], event["args"].get("correlation")
            match event["cat"]:
                case "kernel":
                    row = (start, end, device, 7, key, PROCESS, number(name), number(name[:9]))
                    file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?)", row)
                case "gpu_memcpy":
                    copy = (start, end, device, key, PROCESS, 1)
                    file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?)", copy)
                case "cuda_runtime":
                    call = (start, end, PROCESS | 99, key, number(f"{name}_v7000"))
                    file.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", call)
                case "user_annotation":
                    file.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,59,NULL,?)", (start, end, number(name)))
        file.executemany("INSERT INTO StringIds VALUES (?,?)", [(number, text) for text, number in strings.items()])
        file.execute("INSERT INTO TARGET_INFO_GPU VALUES (?, 'NVIDIA H100 80GB HBM3')", (device,))
    return path

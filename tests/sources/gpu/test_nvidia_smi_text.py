"""The texts in nvidia_smi/*.txt are written after what nvidia-smi prints; the values are invented.

The columns are those in public issues: the table of drivers 384 to 555 and 610 (NVIDIA/nvidia-docker, pytorch/pytorch,
XuehaiPan/nvitop, sgl-project/sglang), -L with MIG (DataDog/datadog-agent), topo -m and collect_env
(vllm-project/vllm).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paths import NVIDIA_SMI
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Known, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu.gpu import Gpu, GpuProcess, GpuSample, GpuUse, GpuView, facts
from vllm_doctor.sources.gpu.looks import MORE, NO_CLOCKS, NO_TABLE
from vllm_doctor.sources.gpu.printed import read

FOLDER = NVIDIA_SMI
MIB = 2.0**20
NOT_TOLD = Unknown(Reason.NOT_SUPPORTED)


def known(value: float) -> Known:
    return Known(value, origin="nvidia-smi")


def text(name: str) -> str:
    return (FOLDER / f"{name}.txt").read_text("utf-8")


def read_text(tmp_path: Path, content: str | bytes) -> GpuView:
    file = tmp_path / "smi.txt"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read(file)


def view_or_line(tmp_path: Path, content: str | bytes) -> GpuView | str:
    try:
        return read_text(tmp_path, content)
    except UsageError as error:
        return str(error)


H100, H100_OTHER = (
    Gpu(
        index=0,
        uuid="0000:1b:00.0",
        name="NVIDIA H100 80GB HBM3",
        bus_id="0000:1b:00.0",
        memory_total=known(81559 * MIB),
        power_limit=known(500),
        persistence=known(True),
        ecc_uncorrected=known(0),
        mig=known(False),
    ),
    Gpu(
        index=1,
        uuid="0000:43:00.0",
        name="NVIDIA H100 80GB HBM3",
        bus_id="0000:43:00.0",
        memory_total=known(81559 * MIB),
        power_limit=known(700),
        persistence=known(False),
        ecc_uncorrected=known(6),
        mig=known(False),
    ),
)


# --- the table ------------------------------------------------------------------------------------------------------


def test_a_table_of_a_present_driver_tells_what_it_holds_and_nothing_more() -> None:
    view = read(FOLDER / "table-h100-driver-555.txt")
    assert (view.origin, view.driver, view.cuda, view.missing, view.lost) == (
        "nvidia-smi", "555.58.02", "12.5", None, frozenset(),
    )  # fmt: skip
    assert view.gpus == (H100, H100_OTHER)
    assert view.samples[0] == GpuSample(
        index=0,
        uuid="0000:1b:00.0",
        at=0.0,
        utilization=known(0.97),
        memory_used=known(73500 * MIB),
        power=known(498),
        temperature=known(66),
        processes=(
            GpuProcess(4101, "VLLM::Worker_TP0", known(73490 * MIB)),
            GpuProcess(9001, ".../envs/a b/bin/python", known(510 * MIB)),
        ),
    )
    assert (view.samples[1].utilization, view.samples[1].processes) == (known(0), ())
    assert view.notes == (NO_CLOCKS,)


def test_an_old_table_has_other_columns_and_cuts_names() -> None:
    view = read(FOLDER / "table-v100-driver-410.txt")
    assert (view.driver, view.cuda) == ("410.104", "10.0")
    assert [gpu.name for gpu in view.gpus] == ["Tesla V100-SXM2...", "GeForce GTX 108...", "Tesla V100-SXM2..."]
    assert (view.gpus[0].memory_total, view.gpus[0].power_limit) == (known(16130 * MIB), known(300))
    assert view.samples[0].processes == (GpuProcess(4101, "python", known(15001 * MIB)),)
    assert (view.gpus[0].mig, view.gpus[1].power_limit, view.gpus[1].ecc_uncorrected) == (NOT_TOLD,) * 3
    assert (view.samples[1].utilization, view.samples[1].power) == (NOT_TOLD, NOT_TOLD)
    assert view.samples[1].processes is Reason.NOT_SUPPORTED


def test_a_gpu_that_answers_with_errors_is_lost() -> None:
    view = read(FOLDER / "table-v100-driver-410.txt")
    assert view.lost == {2}
    assert view.notes[0] == 'GPU 2 answers "ERR!": it is lost, or needs a reset'
    assert view.samples[2].temperature == NOT_TOLD


def test_a_fan_that_does_not_answer_is_no_lost_gpu(tmp_path: Path) -> None:
    content = text("table-h100-driver-555").replace(
        "| N/A   66C    P0            498W /", "|ERR!   66C    P0           ERR! /"
    )
    view = read_text(tmp_path, content)
    assert (view.lost, view.samples[0].temperature, view.samples[0].power) == (frozenset(), known(66), NOT_TOLD)


@pytest.mark.parametrize(
    ("head", "driver", "cuda"),
    [
        ("| NVIDIA-SMI 384.111                Driver Version: 384.111                   |", "384.111", ""),
        (
            "| NVIDIA-SMI 610.43.02              KMD Version: 610.43.02     CUDA UMD Version: 13.3     |",
            "610.43.02",
            "13.3",
        ),
        ("| NVIDIA-SMI 535.104.05     Driver Version: 537.13     CUDA Version: 12.2     |", "537.13", "12.2"),
        ("| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: N/A      |", "550.54.15", ""),
    ],
)
def test_the_head_names_driver_and_cuda_in_the_words_of_its_time(
    tmp_path: Path, head: str, driver: str, cuda: str
) -> None:
    first, _, rest = text("table-h100-driver-555").partition("| NVIDIA-SMI")
    view = read_text(tmp_path, f"{first}{head}\n{rest.partition(chr(10))[2]}")
    assert (view.driver, view.cuda, view.gpus) == (driver, cuda, (H100, H100_OTHER))


def test_on_windows_the_driver_model_stands_where_the_persistence_does(tmp_path: Path) -> None:
    view = read_text(
        tmp_path,
        "|   0  NVIDIA GeForce GTX 1080 Ti    WDDM | 00000000:09:00.0  On |                  N/A |\r\n"
        "| 37%   63C    P0               65W / 250W|   1585MiB / 11264MiB |      1%      Default |\r\n"
        "+---------------------------------------------------------------------------------------+\r\n"
        "| Processes:                                                                            |\r\n"
        "|    0   N/A  N/A      1640    C+G   Insufficient Permissions                   N/A      |\r\n"
        "+---------------------------------------------------------------------------------------+\r\n",
    )
    assert (view.gpus[0].name, view.gpus[0].persistence) == ("NVIDIA GeForce GTX 1080 Ti", NOT_TOLD)
    assert view.gpus[0].power_limit == known(250)
    assert view.samples[0].processes == (GpuProcess(1640, "", NOT_TOLD),)


@pytest.mark.parametrize(
    ("end", "processes"),
    [
        ("| Processes: |\n|  GPU  PID  Type |\n|====|\n|  No running processes found  |\n+----+", ()),
        ("| Processes: |\n|  GPU  PID  Type |\n|====|\n+----+", ()),
        (
            "+----+\n| Processes: |\n|  GPU  PID  Type |\n|====|\n|   1   7   C   python   3MiB |\n",
            Reason.NOT_SUPPORTED,
        ),
        (
            "+----+\n| Processes: |\n|  GPU  PID  Type |\n|====|\n|   0   something new      |\n+----+",
            Reason.NOT_SUPPORTED,
        ),
        ("", Reason.NOT_SUPPORTED),
    ],
    ids=["none", "no row", "cut off", "not understood", "no table"],
)
def test_no_process_is_not_the_same_as_none_told(
    tmp_path: Path, end: str, processes: tuple[GpuProcess, ...] | Reason
) -> None:
    table = text("table-h100-driver-555").partition("| Processes")[0]
    assert read_text(tmp_path, table + end).samples[0].processes == processes


def test_each_table_of_watch_is_one_more_sample(tmp_path: Path) -> None:
    once = text("table-h100-driver-555")
    later = once.replace("09:15:02", "09:15:07").replace("97%", "12%")
    view = read_text(tmp_path, f"Every 1.0s: nvidia-smi\n\n{once}\n{later}")
    assert [(sample.at, sample.index) for sample in view.samples] == [(0, 0), (0, 1), (5, 0), (5, 1)]
    assert [sample.utilization for sample in view.samples[::2]] == [known(0.97), known(0.12)]
    assert view.gpus == (H100, H100_OTHER)


@pytest.mark.parametrize("prefix", ["> ", "    ", "vllm-1  | ", "\t"])
def test_a_quoted_table_is_read_as_well(tmp_path: Path, prefix: str) -> None:
    content = "\n".join(f"{prefix}{line}" for line in text("table-h100-driver-555").splitlines())
    view = read_text(tmp_path, content)
    assert view.gpus == (H100, H100_OTHER)
    assert [sample.processes for sample in view.samples] == [
        sample.processes for sample in read(FOLDER / "table-h100-driver-555.txt").samples
    ]


def test_rows_without_their_head_are_a_table(tmp_path: Path) -> None:
    view = read_text(tmp_path, text("table-h100-driver-555").partition("|=====")[2])
    assert (view.gpus, view.driver) == ((H100, H100_OTHER), "")


def test_a_head_alone_tells_of_the_driver_and_not_that_there_is_no_gpu(tmp_path: Path) -> None:
    view = read_text(
        tmp_path, "On a T4 with NVIDIA-SMI 525.60.13   Driver Version: 525.60.13   CUDA Version: 12.0 it hangs"
    )
    told = facts(view, GpuUse())
    assert (told["driver_version"], told["driver_cuda"]) == (known("525.60.13"), known(12.0))  # type: ignore[arg-type]
    assert {told["gpus_on_host"], told["gpus"], told["gpus_lost"], told["gpu_name"]} == {NOT_TOLD}


def test_mig_devices_stand_in_the_place_of_their_gpu() -> None:
    view = read(FOLDER / "mig-a100-driver-525.txt")
    assert [(gpu.index, gpu.uuid[:4], gpu.uuid[-1], gpu.mig_profile) for gpu in view.gpus] == [
        (0, "MIG-", "1", "3g.40gb"), (0, "MIG-", "2", "1g.10gb"), (1, "GPU-", "f", ""),
    ]  # fmt: skip
    assert [gpu.memory_total for gpu in view.gpus] == [known(mib * MIB) for mib in (40192, 9728, 81920)]
    assert [sample.memory_used for sample in view.samples] == [known(mib * MIB) for mib in (35100, 12, 0)]
    assert [gpu.mig for gpu in view.gpus] == [known(True), known(True), known(False)]
    assert [sample.processes for sample in view.samples] == [
        (GpuProcess(7700, "VLLM::EngineCore", known(35000 * MIB)),), (), (),
    ]  # fmt: skip
    assert {gpu.name for gpu in view.gpus} == {"NVIDIA A100-SXM4-80GB"}  # the list's; the table cut it


def test_a_mig_table_alone_names_its_devices_as_cuda_did(tmp_path: Path) -> None:
    view = read_text(tmp_path, text("mig-a100-driver-525").partition("$ nvidia-smi\n")[2])
    assert [gpu.uuid for gpu in view.gpus] == ["MIG-0000:07:00.0/2/0", "MIG-0000:07:00.0/9/0", "0000:0f:00.0"]
    assert {gpu.mig_profile for gpu in view.gpus} == {""}


# --- the list -------------------------------------------------------------------------------------------------------


def test_a_list_without_uuids_names_gpu_and_slice(tmp_path: Path) -> None:
    view = read_text(
        tmp_path, "GPU 0: NVIDIA H100 80GB HBM3\n  MIG 2g.20gb     Device  0:\n  MIG 2g.20gb     Device  1:\n"
    )
    assert [(gpu.name, gpu.mig_profile) for gpu in view.gpus] == [("NVIDIA H100 80GB HBM3", "2g.20gb")] * 2
    assert len({gpu.uuid for gpu in view.gpus}) == 2
    assert [sample.uuid for sample in view.samples] == [gpu.uuid for gpu in view.gpus]
    assert view.notes == (NO_TABLE,)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("GPU 3: Tesla T4 (UUID: GPU-0a1b2c3d-0000-4e5f-8a9b-0c1d2e3f4a5b)", "Tesla T4"),
        ("GPU models and configuration : GPU 3: NVIDIA B200", "NVIDIA B200"),
        ("GPU models and configuration:\nGPU 3: Graphics Device", "Graphics Device"),
        ("  GPU 3: A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("- GPU models and configuration: GPU 3: NVIDIA L4\x1b[0m", None),
        ("GPU 3: it hangs at 97 %", None),
        ("GPU 3: NVIDIA says that this card cannot be used with it any more", None),
        ("GPU models and configuration: GPU 3: AMD Instinct MI300X", None),
    ],
)
def test_what_a_line_of_the_list_is(tmp_path: Path, line: str, name: str | None) -> None:
    if name is None:
        with pytest.raises(UsageError, match="is not the output of nvidia-smi"):
            read_text(tmp_path, line)
    else:
        assert [(gpu.index, gpu.name) for gpu in read_text(tmp_path, line).gpus] == [(3, name)]


def test_uuids_that_were_blanked_out_do_not_make_one_gpu_of_two(tmp_path: Path) -> None:
    view = read_text(tmp_path, "GPU 0: NVIDIA L4 (UUID: GPU-xxxx)\nGPU 1: NVIDIA L4 (UUID: GPU-xxxx)\n")
    assert [gpu.uuid for gpu in view.gpus] == ["GPU-xxxx", "GPU 1"]


# --- the matrix -----------------------------------------------------------------------------------------------------

MATRIX = """\tGPU0\tGPU1\tGPU2\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tSYS\tPXB\t0-55,112-167\t0\t\tN/A
GPU1\tNV18\t X \tNODE\tSYS\t0-55,112-167\t0\t\tN/A
GPU2\tSYS\tNODE\t X \tSYS\t56-111,168-223\t1\t\tN/A
NIC0\tPXB\tSYS\tSYS\t X \t\t\t\t
"""


def test_a_matrix_tells_links_and_nodes_and_no_names(tmp_path: Path) -> None:
    view = read_text(tmp_path, MATRIX)
    assert view.nvlink_pairs == {(0, 1): True, (0, 2): False, (1, 2): False}
    assert view.numa_nodes == {0: 0, 1: 0, 2: 1}
    assert [(gpu.index, gpu.name) for gpu in view.gpus] == [(0, ""), (1, ""), (2, "")]
    told = facts(view, GpuUse(wanted=2))
    assert (told["nvlink"], told["gpus"], told["gpus_on_host"]) == (known(True), known(2), known(3))
    assert {told[name] for name in ("gpu_name", "gpu_compute_capability", "gpu_memory_total", "gpu_flops")} == {
        NOT_TOLD
    }
    assert {told[name] for name in ("gpu_utilization", "gpu_thermal_share", "gpu_clock_share")} == {NOT_TOLD}
    assert facts(view, GpuUse(wanted=3))["nvlink"] == known(False)


@pytest.mark.parametrize(
    ("changes", "nodes"),
    [
        ((("\t", "    "),), {0: 0, 1: 0, 2: 1}),
        ((("\tNUMA Affinity\tGPU NUMA ID", ""), ("\t0\t\tN/A", ""), ("\t1\t\tN/A", "")), {}),
        ((("\tGPU NUMA ID", ""), ("\t\tN/A", "")), {0: 0, 1: 0, 2: 1}),
        ((("0-55,112-167\t0", "\t"),), {2: 1}),
        ((("\t0\t", "\t0-1\t"),), {2: 1}),
        ((("\t0\t", "\tN/A\t"),), {2: 1}),
        ((("GPU2\tNIC0", "GPU2NIC0"),), {0: 0, 1: 0, 2: 1}),
    ],
    ids=["spaces", "no column", "no id", "blank", "two", "not told", "run together"],
)
def test_a_node_is_known_where_one_is_told(
    tmp_path: Path, changes: tuple[tuple[str, str], ...], nodes: dict[int, int]
) -> None:
    content = MATRIX
    for old, new in changes:
        assert old in content
        content = content.replace(old, new)
    view = read_text(tmp_path, content)
    assert view.numa_nodes == nodes
    assert view.nvlink_pairs == {(0, 1): True, (0, 2): False, (1, 2): False}


def test_another_matrix_tells_no_links(tmp_path: Path) -> None:
    view = read_text(tmp_path, " \tGPU0\tGPU1\t\n GPU0\tX\tGNS\t\n GPU1\tOK\tX\t\n")
    assert (view.nvlink_pairs, view.p2p_pairs) == ({}, {})


# --- several in one file --------------------------------------------------------------------------------------------


def test_an_issue_tells_what_collect_env_printed() -> None:
    view = read(FOLDER / "issue.txt")
    assert (view.driver, view.cuda) == ("550.90.07", "")
    assert [(gpu.index, gpu.name) for gpu in view.gpus] == [(0, "NVIDIA L40S"), (1, "NVIDIA L40S")]
    assert (view.nvlink_pairs, view.numa_nodes) == ({(0, 1): False}, {0: 0, 1: 1})


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_several_forms_add_up_in_any_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    forms = (
        text("table-h100-driver-555"),
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)\nGPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-b)\n",
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV18\t0-9\nGPU1\tNV18\t X \t0-9\n",
    )
    view = read_text(tmp_path, "\nand then\n".join(forms[at] for at in order))
    assert [(gpu.uuid, gpu.bus_id, gpu.memory_total) for gpu in view.gpus] == [
        ("GPU-a", "0000:1b:00.0", known(81559 * MIB)), ("GPU-b", "0000:43:00.0", known(81559 * MIB)),
    ]  # fmt: skip
    assert [sample.uuid for sample in view.samples] == ["GPU-a", "GPU-b"]
    assert view.nvlink_pairs == {(0, 1): True}


def test_another_host_in_the_same_file_is_left_out_and_named(tmp_path: Path) -> None:
    other = "GPU 0: Tesla T4 (UUID: GPU-t)\nGPU 7: Tesla T4 (UUID: GPU-u)\n"
    view = read_text(tmp_path, f"{text('table-h100-driver-555')}\n{other}")
    assert view.gpus == (H100, H100_OTHER)
    assert view.notes[0] == (
        "GPU 0 is NVIDIA H100 80GB HBM3 0000:1b:00.0 and further on Tesla T4 GPU-t: only the first is read"
    )


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le"])
def test_any_encoding_that_a_shell_writes_is_read(tmp_path: Path, encoding: str) -> None:
    content = text("table-h100-driver-555").replace("\n", "\r\n")
    assert read_text(tmp_path, content.encode(encoding)).gpus == (H100, H100_OTHER)


# --- hostile files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "flood",
    [
        lambda: "GPU 0: NVIDIA " + "A" * 4_000_000,
        lambda: "NVIDIA-SMI 1 Driver Version:" + " " * 4_000_000,
        lambda: "GPU 0: NVIDIA A\n" * 900_000,
        lambda: "NVIDIA-SMI Driver Version: 1\n" * 500_000,
        lambda: "GPU 0\n" + "|\n" * 7_000_000,
        lambda: "GPU 0\n" + "\n" * 15_000_000,
        lambda: "GPU0 GPU1 CPU\n" + "GPU0 X NV1\n" * 1_000_000,
        lambda: "GPU0 " + "GPU1NIC2" * 1_000_000,
        lambda: "|   0  A  Off | 00000000:01:00.0 Off | 0 |\n" * 300_000,
        lambda: "\x1b[" * 7_000_000 + "GPU 0",
        lambda: "".join(f"|  {i % 999}  A  Off | 00000000:01:00.0 Off | 0 |\n" for i in range(90_000)),
        lambda: "GPU 0: NVIDIA A\n" + "".join(f"MIG 1g Device {i % 99}:\n" for i in range(90_000)),
        lambda: (
            "NVIDIA-SMI Driver Version: 1\n|   0  A  Off | 0000:01:00.0 Off | 0 |\n| Processes: |\n"
            + "|  0  7  C  p  1MiB |\n" * 600_000
        ),
    ],
    ids=[
        "name", "head", "list", "heads", "boxes", "blank", "matrix", "columns", "rows", "escapes", "gpus", "slices",
        "processes",
    ],
)  # fmt: skip
def test_no_file_takes_long(tmp_path: Path, flood: Callable[[], str]) -> None:
    content = flood()
    start = time.process_time()
    outcome = view_or_line(tmp_path, content)
    assert isinstance(outcome, GpuView) or "\n" not in outcome
    assert time.process_time() - start < 5


def test_every_cut_gives_a_view_or_one_line(tmp_path: Path) -> None:
    for name in ("table-v100-driver-410", "mig-a100-driver-525", "issue"):
        content = text(name)
        for end in range(0, len(content), 61):
            outcome = view_or_line(tmp_path, content[:end])
            assert facts(outcome, GpuUse()) if isinstance(outcome, GpuView) else "\n" not in outcome


ROW = """\
|   {0}  NVIDIA L20                     On  |   00000000:8{0}:00.0 Off |                    0 |
| N/A   41C    P0             80W /  350W |   45040MiB /  46068MiB |      0%      Default |
|                                         |                        |                  N/A |
"""
LINE = "+-----------------------------------------+------------------------+----------------------+\n"
CUT_MATRIX = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV18\tNV18\tNV18\t0-55\t0
GPU1\tNV18\t X \tNV18\tNV18\t0-55\t0
"""


@pytest.mark.parametrize(
    ("content", "on_host"),
    [
        pytest.param(ROW.format(0) + LINE + ROW.format(1) + LINE, 2.0, id="a whole table"),
        pytest.param(ROW.format(0) + LINE + ROW.format(1), None, id="cut off within a GPU"),
        pytest.param(ROW.format(0) + LINE + ROW.format(1)[:100], None, id="cut off within its first line"),
        pytest.param(ROW.format(0) + ROW.format(0) + LINE, 1.0, id="cut off, and whole in the next table"),
        pytest.param(ROW.format(4) + LINE + ROW.format(5) + LINE, None, id="of some GPUs only"),
        pytest.param("GPU 1: NVIDIA L20 (UUID: GPU-1)\n", None, id="a list of some GPUs only"),
        pytest.param(CUT_MATRIX, 4.0, id="a matrix names them all in its head"),
    ],
)
def test_how_many_gpus_the_host_has_is_known_of_a_whole_text_only(
    tmp_path: Path, content: str, on_host: float | None
) -> None:
    view = read_text(tmp_path, content)
    assert facts(view, GpuUse())["gpus_on_host"] == (NOT_TOLD if on_host is None else known(on_host))
    assert (MORE in view.notes) is (on_host is None)


def test_random_bytes_never_give_a_traceback(tmp_path: Path) -> None:
    original = (FOLDER / "mig-a100-driver-525.txt").read_bytes()
    for turn in range(150):
        noise = os.urandom(8)
        place = (turn * 43) % len(original)
        outcome = view_or_line(tmp_path, original[:place] + noise + original[place + len(noise) :])
        assert isinstance(outcome, GpuView) or "\n" not in outcome


def test_names_carry_nothing_that_moves_a_terminal(tmp_path: Path) -> None:
    content = text("table-h100-driver-555").replace("VLLM::Worker_TP0", "VLLM\u009b2J\u202e_TP0 ")
    view = read_text(tmp_path, content.replace("NVIDIA H100 80GB", "NVIDIA\u009b2J\u202e80GB"))
    assert view.gpus[0].name == "NVIDIA 2J 80GB HBM3"
    processes = view.samples[0].processes
    assert not isinstance(processes, Reason)
    assert processes[0].name == "VLLM 2J _TP0"

"""The documents in nvidia_smi/ are written after the format of nvidia-smi -q -x; the values are invented."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paths import NVIDIA_SMI
from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.sources.gpu import gpu as bits
from vllm_doctor.sources.gpu.gpu import Gpu, GpuProcess, GpuSample, GpuView
from vllm_doctor.sources.gpu.printed import read

FOLDER = NVIDIA_SMI
MIB = 2.0**20
DENIED, NOT_TOLD = Unknown(Reason.DENIED), Unknown(Reason.NOT_SUPPORTED)


def known(value: float) -> Known:
    return Known(value, origin="nvidia-smi")


def text(name: str) -> str:
    return (FOLDER / f"{name}.xml").read_bytes().decode()


def read_text(tmp_path: Path, content: str | bytes) -> GpuView:
    file = tmp_path / "smi.xml"
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return read(file)


def view_or_line(tmp_path: Path, content: bytes) -> GpuView | str:
    try:
        return read_text(tmp_path, content)
    except UsageError as error:
        return str(error)


def edited(tmp_path: Path, name: str, *changes: tuple[str, str]) -> tuple[Gpu, GpuSample]:
    """The first GPU of a document with some texts replaced."""
    content = text(name)
    for old, new in changes:
        assert old in content
        content = content.replace(old, new)
    view = read_text(tmp_path, content)
    return view.gpus[0], view.samples[0]


def test_a_data_centre_gpu_of_a_present_driver_is_read_whole() -> None:
    view = read(FOLDER / "h100-driver-550.xml")
    assert (view.origin, view.driver, view.cuda, view.missing, view.notes) == (
        "nvidia-smi", "550.90.07", "12.4", None, (),
    )  # fmt: skip
    assert view.gpus[0] == Gpu(
        index=0,
        uuid="GPU-0a1b2c3d-0000-4e5f-8a9b-0c1d2e3f4a5b",
        name="NVIDIA H100 80GB HBM3",
        bus_id="0000:1b:00.0",
        memory_total=known(81559 * MIB),
        power_limit=known(500),
        power_limit_default=known(700),
        sm_clock_max=known(1980),
        applications_clock=known(1980),
        applications_clock_default=known(1980),
        pcie_generation_max=known(5),
        pcie_width_max=known(16),
        persistence=known(True),
        ecc_uncorrected=known(0),
        remap_pending=known(False),
        remap_failed=known(False),
        mig=known(False),
    )
    assert view.samples[0] == GpuSample(
        index=0,
        uuid="GPU-0a1b2c3d-0000-4e5f-8a9b-0c1d2e3f4a5b",
        at=0.0,
        utilization=known(0.97),
        memory_used=known(73500 * MIB),
        memory_free=known(7508 * MIB),
        sm_clock=known(1410),
        event_reasons=known(bits.SW_POWER_CAP),
        power=known(498.2),
        temperature=known(66),
        pcie_generation=known(5),
        pcie_width=known(16),
        processes=(GpuProcess(4101, "VLLM::Worker_TP0", known(73490 * MIB)),),
    )
    assert (view.nvlink_pairs, view.p2p_pairs) == ({}, {})


def test_each_gpu_has_its_own_values() -> None:
    view = read(FOLDER / "h100-driver-550.xml")
    assert [gpu.index for gpu in view.gpus] == [0, 1]
    gpu, sample = view.gpus[1], view.samples[1]
    assert (gpu.ecc_uncorrected, gpu.remap_pending) == (known(6), known(True))  # volatile only: SRAM and DRAM
    assert sample.event_reasons == known(bits.HW_SLOWDOWN | bits.HW_THERMAL)
    assert (sample.pcie_generation, sample.pcie_width) == (known(4), known(8))
    assert isinstance(sample.processes, tuple)
    assert [process.pid for process in sample.processes] == [4102, 9001]


def test_an_old_driver_says_throttle_double_bit_and_retired_pages() -> None:
    view = read(FOLDER / "t4-driver-470.xml")
    gpu, sample = view.gpus[0], view.samples[0]
    assert sample.event_reasons == known(bits.HW_SLOWDOWN | bits.HW_POWER_BRAKE)
    assert (gpu.power_limit, gpu.power_limit_default) == (known(60), known(70))
    assert (gpu.ecc_uncorrected, gpu.remap_pending, gpu.remap_failed) == (known(2), known(True), NOT_TOLD)
    assert (gpu.mig, gpu.pcie_generation_max, sample.utilization) == (NOT_TOLD, known(3), known(1))


def test_windows_tells_processes_without_their_memory() -> None:
    view = read(FOLDER / "rtx-4090-windows.xml")  # with CR LF
    gpu, sample = view.gpus[0], view.samples[0]
    assert sample.processes == (GpuProcess(1640, "", NOT_TOLD), GpuProcess(5120, r"C:\py\python.exe", NOT_TOLD))
    assert (gpu.persistence, gpu.applications_clock, gpu.remap_pending, gpu.ecc_uncorrected) == (NOT_TOLD,) * 4
    assert (sample.power, sample.event_reasons) == (known(311.4), known(0))


def test_mig_instances_stand_in_the_place_of_their_gpu() -> None:
    view = read(FOLDER / "a100-mig-driver-535.xml")
    parent = "GPU-5e6f7a8b-1111-4c2d-9e3f-4a5b6c7d8e9f"
    assert [(gpu.index, gpu.uuid) for gpu in view.gpus] == [(0, f"MIG-{parent}/1/0"), (0, f"MIG-{parent}/2/0")]
    assert [gpu.memory_total for gpu in view.gpus] == [known(40192 * MIB)] * 2
    assert [sample.memory_used for sample in view.samples] == [known(35100 * MIB), known(25 * MIB)]
    assert [sample.processes for sample in view.samples] == [
        (GpuProcess(7700, "VLLM::EngineCore", known(35000 * MIB)),),
        (),
    ]
    assert {sample.utilization for sample in view.samples} == {NOT_TOLD}
    assert {gpu.power_limit for gpu in view.gpus} == {known(300)}  # the board's


def test_a_mig_instance_keeps_the_uuid_that_the_file_gives_it(tmp_path: Path) -> None:
    gpu, sample = edited(tmp_path, "a100-mig-driver-535", ("<index>0</index>", "<index>0</index><uuid>MIG-1234</uuid>"))
    assert (gpu.uuid, sample.uuid) == ("MIG-1234", "MIG-1234")


@pytest.mark.parametrize(
    ("said", "reading"),
    [
        ("35 %", known(0.35)),
        ("  7 %\n", known(0.07)),
        ("N/A", NOT_TOLD),
        ("[N/A]", NOT_TOLD),
        ("", NOT_TOLD),
        ("Not Supported", NOT_TOLD),
        ("Requested functionality has been deprecated", NOT_TOLD),
        ("GPU access blocked by the operating system", NOT_TOLD),
        ("Unknown Error", NOT_TOLD),
        ("ERR!", NOT_TOLD),
        ("Insufficient Permissions", DENIED),
        ("[Insufficient Permissions]", DENIED),
        ("nan %", NOT_TOLD),
        ("inf", NOT_TOLD),
        ("1e999 %", NOT_TOLD),
        ("9" * 400, NOT_TOLD),
        ("-5 %", NOT_TOLD),
        ("5 parsecs", NOT_TOLD),
    ],
)
def test_what_is_no_number_is_unknown(tmp_path: Path, said: str, reading: Reading) -> None:
    _, sample = edited(tmp_path, "h100-driver-550", ("<gpu_util>97 %</gpu_util>", f"<gpu_util>{said}</gpu_util>"))
    assert sample.utilization == reading


def test_a_gpu_of_which_nothing_is_told_is_still_there(tmp_path: Path) -> None:
    content = '<nvidia_smi_log><gpu id="00000000:84:00.0"></gpu></nvidia_smi_log>'
    view = read_text(tmp_path, content)
    assert view.gpus == (Gpu(0, "0000:84:00.0", "", "0000:84:00.0"),)
    assert view.samples == (GpuSample(0, "0000:84:00.0", 0.0),)
    assert (view.driver, view.cuda) == ("", "")


@pytest.mark.parametrize(
    ("block", "processes"),
    [
        ("<processes></processes>", ()),
        ("<processes>None</processes>", ()),
        ("<processes>N/A</processes>", Reason.NOT_SUPPORTED),
        ("<processes>Insufficient Permissions</processes>", Reason.DENIED),
        ("", Reason.NOT_SUPPORTED),
        ("<processes><process_info><pid>x</pid></process_info></processes>", ()),
        ("<processes><process_info><pid>7</pid></process_info></processes>", (GpuProcess(7),)),
    ],
)
def test_no_process_is_not_the_same_as_none_told(
    tmp_path: Path, block: str, processes: tuple[GpuProcess, ...] | Reason
) -> None:
    view = read_text(tmp_path, f"<nvidia_smi_log><gpu >{block}</gpu></nvidia_smi_log>")
    assert view.samples[0].processes == processes


def test_a_broken_gpu_is_noted(tmp_path: Path) -> None:
    content = text("h100-driver-550").replace("<gpu_temp>88 C</gpu_temp>", "<gpu_temp>Unknown Error</gpu_temp>")
    view = read_text(tmp_path, content)
    assert view.notes == ('GPU 1 answers "Unknown Error": it is lost, or needs a reset',)
    assert view.lost == {1}


def test_where_i_picked_one_gpu_out_its_minor_number_is_its_index(tmp_path: Path) -> None:
    content = text("t4-driver-470").replace("<attached_gpus>1<", "<attached_gpus>8<")
    view = read_text(tmp_path, content.replace("<minor_number>0<", "<minor_number>5<"))
    assert (view.gpus[0].index, view.samples[0].index) == (5, 5)
    assert view.notes == ("the file of nvidia-smi lists 1 of 8 GPUs",)
    assert view.more


# --- several documents, and parts of one ----------------------------------------------------------------------------


def in_turn(*times: str) -> str:
    return "".join(text("h100-driver-550").replace("09:15:02", moment) for moment in times)


def test_each_document_of_l_is_one_more_sample(tmp_path: Path) -> None:
    view = read_text(tmp_path, in_turn("09:15:02", "09:15:03", "09:15:05"))
    assert len(view.gpus) == 2
    assert [(sample.at, sample.index) for sample in view.samples] == [(0, 0), (0, 1), (1, 0), (1, 1), (3, 0), (3, 1)]


@pytest.mark.parametrize("moments", [("09:15:02", "08:15:02", "08:15:03"), ("later", "still later", "at last")])
def test_time_never_runs_backwards(tmp_path: Path, moments: tuple[str, ...]) -> None:
    at = [sample.at for sample in read_text(tmp_path, in_turn(*moments)).samples]
    assert at == sorted(at)
    assert at[0] == 0


def test_a_log_that_was_interrupted_keeps_what_is_whole(tmp_path: Path) -> None:
    content = in_turn("09:15:02", "09:15:03")
    view = read_text(tmp_path, content[: content.rindex("<processes>")])  # within GPU 1 of the second
    assert [(sample.at, sample.index) for sample in view.samples] == [(0, 0), (0, 1), (1, 0)]
    assert view.notes == ("the file of nvidia-smi is cut off: only the GPUs before the cut are known",)
    assert not view.more
    first = text("h100-driver-550")
    assert read_text(tmp_path, first[: first.rindex("<processes>")]).more


def test_every_cut_gives_a_view_or_one_line(tmp_path: Path) -> None:
    content = text("h100-driver-550")
    for end in range(0, len(content), 97):
        outcome = view_or_line(tmp_path, content[:end].encode())
        if isinstance(outcome, GpuView):
            assert len(outcome.gpus) in (1, 2)
            assert any("cut off" in note for note in outcome.notes)
        else:
            assert "\n" not in outcome


def test_a_gpu_that_vanished_is_noted_and_the_others_keep_their_index(tmp_path: Path) -> None:
    content = text("h100-driver-550")
    first, last = content.index("<gpu id"), content.rindex("<gpu id")
    without_first = (content[:first] + content[last:]).replace("<attached_gpus>2<", "<attached_gpus>1<")
    view = read_text(tmp_path, content + without_first)
    assert [(sample.index, sample.uuid[13:17]) for sample in view.samples] == [(0, "0000"), (1, "0001"), (1, "0001")]
    assert view.notes == ("GPU 0 is missing at the end of the file",)
    assert view.lost == {0}


def test_damaged_xml_costs_only_its_gpu(tmp_path: Path) -> None:
    view = read_text(tmp_path, text("h100-driver-550").replace("<pid>4101</pid>", "<pid>4101</pod>"))
    assert [gpu.index for gpu in view.gpus] == [1]
    assert view.notes[0] == "the XML of GPU 0 is damaged: left out"


def test_words_of_a_terminal_around_the_document_do_not_matter(tmp_path: Path) -> None:
    content = f"$ nvidia-smi -q -x\n{text('t4-driver-470')}WARNING: infoROM is corrupted at gpu 0000:3B:00.0\n"
    assert read_text(tmp_path, content) == read(FOLDER / "t4-driver-470.xml")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_any_encoding_that_a_shell_writes_is_read(tmp_path: Path, encoding: str) -> None:
    content = text("t4-driver-470").replace("\n", "\r\n")
    assert read_text(tmp_path, content.encode(encoding)) == read(FOLDER / "t4-driver-470.xml")


# --- what is no such file -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("", "is empty"),
        (" \r\n", "is empty"),
        ("==============NVSMI LOG==============\n\nTimestamp : now", "the text of nvidia-smi -q, and lists no GPU"),
        ("===== ROCm System Management Interface =====", "the output of rocm-smi or amd-smi, and lists no GPU"),
        ("<!DOCTYPE html>\n<html><body>404</body></html>", "an HTML page"),
        ('{"gpus": []}', "is JSON"),
        ("<gpu><uuid>GPU-1</uuid></gpu></nvidia_smi_log>", "its beginning is missing"),
        ("<rss></rss>", "is XML, but not of nvidia-smi"),
        (b"\x7fELF\x02\x01\x01\x00\x00\x00" * 9, "a binary file"),
        (bytes(range(128, 256)), "a binary file"),
        ("hello", "is not the output of nvidia-smi"),
        ("<nvidia_smi_log>", "is cut off within its first GPU"),
        ("<nvidia_smi_log><gpu id='1'><uuid>", "is cut off within its first GPU"),
        ("<nvidia_smi_log><attached_gpus>2</attached_gpus></nvidia_smi_log>", "lists no GPU"),
    ],
)
def test_what_is_no_output_of_nvidia_smi_is_named_with_the_way_to_make_it(
    tmp_path: Path, content: str | bytes, what: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_text(tmp_path, content)
    assert what in str(caught.value)
    assert str(caught.value).endswith("make it with: nvidia-smi -q -x > smi.xml")
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_opened_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a directory"):
        read(tmp_path)
    with pytest.raises(UsageError, match="No such file"):
        read(tmp_path / "none.xml")
    with pytest.raises(UsageError, match="cannot be read"):
        read(Path("a\0b"))


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("No devices were found\n", Reason.ABSENT),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.90", Reason.NO_DRIVER),
        ("Failed to initialize NVML: Insufficient Permissions", Reason.DENIED),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", Reason.NO_DRIVER),
        ("Unable to determine the device handle for GPU0000:3B:00.0: Unknown Error", Reason.NO_DRIVER),
    ],
)
def test_nvidia_smi_s_own_excuse_is_kept(tmp_path: Path, said: str, missing: Reason) -> None:
    view = read_text(tmp_path, said)
    assert (view.missing, view.detail, view.gpus) == (missing, " ".join(said.split()), ())


def test_a_host_without_gpus_is_one(tmp_path: Path) -> None:
    view = read_text(tmp_path, "<nvidia_smi_log><attached_gpus>0</attached_gpus></nvidia_smi_log>")
    assert view.missing is Reason.ABSENT


# --- hostile files --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "doctype",
    ['<!DOCTYPE nvidia_smi_log [<!ENTITY a "b">]>', "<!DOCTYPE nvidia_smi_log [<!ELEMENT gpu ANY>]>"],
)
def test_entities_are_refused(tmp_path: Path, doctype: str) -> None:
    with pytest.raises(UsageError, match="declares entities"):
        read_text(tmp_path, f"{doctype}<nvidia_smi_log><gpu ><uuid>&a;</uuid></gpu></nvidia_smi_log>")


@pytest.mark.parametrize(
    ("flood", "what"),
    [
        (lambda: "<nvidia_smi_log>" + " " * (16 << 20), "larger than 16 MB"),
        (lambda: "<nvidia_smi_log>" * 1_000_000, "more than 20,000 times"),
        (lambda: "<nvidia_smi_log>" + "<gpu ></gpu>" * 1_000_000, "more than 20,000 times"),
        (
            lambda: "<nvidia_smi_log>" + "".join(f"<gpu ><uuid>GPU-{i}</uuid></gpu>" for i in range(20_000)),
            "more GPUs than a host can have",
        ),
        (lambda: "<nvidia_smi_log><gpu >" + "<mig_device>" * 9 + "<a>" * 4_000_000 + "</gpu>", "cut off"),
        (lambda: "<nvidia_smi_log>" + "<gpu " * 3_000_000, "cut off"),
        (lambda: "<nvidia_smi_log><gpu >" + "<a>" * 100_000 + "</a>" * 100_000 + "</gpu>", None),
        (lambda: "<nvidia_smi_log><gpu ><uuid>\ud800\x00</uuid></gpu>".encode("utf-8", "surrogatepass"), "cut off"),
    ],
    ids=["large", "documents", "gpus", "uuids", "unclosed", "starts", "deep", "characters"],
)
def test_no_file_takes_long(tmp_path: Path, flood: Callable[[], str | bytes], what: str | None) -> None:
    content = flood()
    start = time.process_time()
    if what is None:
        assert len(read_text(tmp_path, content).gpus) == 1
    else:
        with pytest.raises(UsageError, match=what):
            read_text(tmp_path, content)
    assert time.process_time() - start < 5


def test_random_bytes_never_give_a_traceback(tmp_path: Path) -> None:
    original = (FOLDER / "a100-mig-driver-535.xml").read_bytes()
    for turn in range(150):
        noise = os.urandom(8)
        place = (turn * 43) % len(original)
        outcome = view_or_line(tmp_path, original[:place] + noise + original[place + len(noise) :])
        assert isinstance(outcome, GpuView) or "\n" not in outcome


def test_names_carry_nothing_that_moves_a_terminal(tmp_path: Path) -> None:
    gpu, _ = edited(tmp_path, "t4-driver-470", ("Tesla T4", "Tesla\u009b2J\u202e T4"))
    assert gpu.name == "Tesla 2J  T4"


@pytest.mark.parametrize(
    ("status", "lost", "words"),
    [
        ("<reset_required>Yes</reset_required>", {0}, "Reset Required"),
        ("<reset_required>No</reset_required>", set(), ""),
        ("<drain_and_reset_recommended>Yes</drain_and_reset_recommended>", set(), "should be drained, and reset"),
    ],
)
def test_a_gpu_that_asks_for_a_reset_is_noted(tmp_path: Path, status: str, lost: set[int], words: str) -> None:
    gpu = f"<gpu id='1'><uuid>GPU-1</uuid><gpu_reset_status>{status}</gpu_reset_status></gpu>"
    view = read_text(tmp_path, f"<nvidia_smi_log><attached_gpus>1</attached_gpus>{gpu}</nvidia_smi_log>")
    assert set(view.lost) == lost
    assert any(words in note for note in view.notes) is bool(words)

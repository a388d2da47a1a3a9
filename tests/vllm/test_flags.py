from __future__ import annotations

import re
import subprocess
import sys
from itertools import pairwise

import pytest

from tests.making import settings_of_rules
from tests.paths import PACKAGE
from vllm_doctor.vllm import flags

DATA = PACKAGE / "vllm" / "data"


@pytest.mark.parametrize(
    ("version", "flag", "expected"),
    [
        pytest.param("0.32.0", "--max-num-seqs", True, id="there from the first to the last release"),
        pytest.param("0.17.1", "--swap-space", True, id="before it was removed"),
        pytest.param("0.18.0", "--swap-space", False, id="after it was removed"),
        pytest.param("0.32.0", "--swap-space", False, id="long after it was removed"),
        pytest.param("0.24.0", "--watermark", True, id="since it came"),
        pytest.param("0.23.0", "--watermark", False, id="before it came"),
        pytest.param("0.23.5", "--watermark", None, id="no release, between two that differ"),
        pytest.param("0.23.5", "--max-num-seqs", True, id="no release, between two that have it"),
        pytest.param("0.20.2", "--host", True, id="the frontend's flags"),
        pytest.param("0.32.0", "--no-such-thing", False, id="of no version"),
        pytest.param("0.32.0", "--no-enable-prefix-caching", True, id="the no form"),
        pytest.param("0.32.0", "--no-max-num-seqs", False, id="the no form of what is no switch"),
        pytest.param("0.32.0", "-tp", True, id="a short form"),
        pytest.param("0.32.0", "--max_num_seqs", True, id="with underscores"),
        pytest.param("0.32.0", "--max-num-seqs=64", True, id="with its value"),
        pytest.param("0.32.0", "--max-num-se", False, id="a beginning"),
        pytest.param("0.32.0", "--compilation-config.mode", True, id="a dotted name"),
        pytest.param("0.32.0", "--compilation-config.pass_config.x+", True, id="a dotted name of a list"),
        pytest.param("0.8.0", "--compilation-config.mode", False, id="a dotted name, before vLLM read it"),
        pytest.param("0.32.0", "--max-num-seqs.mode", False, id="a dotted name of a number"),
        pytest.param("0.32.0", "-cc.mode", True, id="a short dotted name"),
        pytest.param("0.32.0", "-O3", True, id="the level of optimisation"),
        pytest.param("0.11.0", "-O.level", True, id="the compilation, dotted"),
        pytest.param("0.32.0", "-O.level", False, id="the compilation, dotted, when it no longer is"),
        pytest.param("0.8.0", "-O3", True, id="the level of optimisation, as it was"),
        pytest.param("0.32.0", "-qawq", True, id="a short form with its value"),
        pytest.param("0.11.1rc3.dev29+gabc", "--max-num-seqs", True, id="a development version"),
        pytest.param("0.11.1rc3.dev29+gabc", "--watermark", False, id="a development version without it"),
        pytest.param("0.32.0+cpu", "--max-num-seqs", True, id="a local version"),
        pytest.param("v0.32.0", "--max-num-seqs", True, id="with a v"),
        pytest.param("0.32", "--max-num-seqs", True, id="two numbers"),
        pytest.param("9.0.0", "--max-num-seqs", None, id="newer than all: perhaps removed"),
        pytest.param("9.0.0", "--swap-space", False, id="newer than all: stays removed"),
        pytest.param("0.7.3", "--speculative-model", True, id="a sample"),
        pytest.param("0.8.0", "--speculative-model", True, id="its last releases"),
        pytest.param("0.2.0", "--max-num-seqs", None, id="older than the samples"),
        pytest.param(None, "--max-num-seqs", None, id="no version"),
        pytest.param("main", "--max-num-seqs", None, id="no version in the text"),
    ],
)
def test_has(version: str | None, flag: str, expected: bool | None) -> None:
    assert flags.has(version, flag) is expected


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("0.32.0", (0, 32, 0)),
        ("0.11.1rc3.dev29+g3fa2c12", (0, 11, 1)),
        ("0.6.6.post1", (0, 6, 6)),
        ("v1.2", (1, 2, 0)),
        ("dev", None),
        ("", None),
    ],
)
def test_release(version: str, expected: tuple[int, ...] | None) -> None:
    assert flags.release(version) == expected


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--max-num-seqs", True),
        ("--swap-space", True),  # also one that is gone
        ("--host", True),
        ("--no-enable-prefix-caching", True),
        ("-tp", True),
        ("--max-nun-seqs", False),
        ("max-num-seqs", False),
        ("", False),
    ],
)
def test_is_flag(flag: str, expected: bool) -> None:
    assert flags.is_flag(flag) is expected


@pytest.mark.parametrize(
    ("version", "judged", "remark"),
    [
        ("0.32.0", "0.32.0", ""),
        ("0.32", "0.32.0", ""),
        ("0.32.0+cu128", "0.32.0", ""),
        ("0.8.5", "0.8.5", ""),
        ("0.8.5.post1", "0.8.5.post1", ""),
        ("0.10.1.1", "0.10.1.1", ""),
        ("0.11.1rc3", "0.11.1", "0.11.1rc3: judged as 0.11.1, the release it leads to"),
        ("0.32.1.dev5+gabc", "0.32.0", "0.32.1.dev5+gabc: judged as 0.32.0, the release before it"),
        ("999.0.0", flags.newest(), f"999.0.0: judged as {flags.newest()}, the newest known"),
        ("999.0.0.dev1", flags.newest(), f"999.0.0.dev1: judged as {flags.newest()}, the newest known"),
        ("0.7.3", "0.7.3", "of 0.7.3 only the names of the flags are known"),
        ("0.7.1", "0.6.6.post1", "0.7.1: judged as 0.6.6.post1; of vLLM before 0.8.0 few releases are known"),
        ("0.2.0", None, "0.2.0: nothing is known of vLLM before 0.4.3"),
    ],
)
def test_the_release_that_answers_for_a_version(version: str, judged: str | None, remark: str) -> None:
    assert flags.judged_as(version) == judged
    assert flags.judgement(version) == remark


def test_a_flag_is_told_whole() -> None:
    flag = flags.flag("0.32.0", "-tp")
    assert flag is not None
    assert flag.name == "--tensor-parallel-size"
    assert flag.spellings == ("--tensor-parallel-size", "-tp")
    assert (flag.kind, flag.choices, flag.default, flag.is_deprecated) == ("int", (), "1", False)
    assert (flag.since, flag.until) == ("0.4.3", None)


def test_a_switch_has_its_no_form() -> None:
    flag = flags.flag("0.32.0", "--no-enable-prefix-caching")
    assert flag is not None
    assert flag.name == "--enable-prefix-caching"
    assert flag.kind == "on-off"
    assert flag.spellings == ("--enable-prefix-caching",)
    assert flag.off == ("--no-enable-prefix-caching",)


def test_a_switch_may_have_an_opposite_that_help_does_not_show() -> None:
    flag = flags.flag("0.33.0", "--disable-prefix-caching")
    assert flag is not None
    assert flag.name == "--enable-prefix-caching"
    assert flag.off == ("--no-enable-prefix-caching", "--disable-prefix-caching")
    assert flags.has("0.32.0", "--disable-prefix-caching") is False
    assert flags.has("0.33.0", "--no-disable-prefix-caching") is False


def test_a_flag_with_choices() -> None:
    flag = flags.flag("0.32.0", "--performance-mode")
    assert flag is not None
    assert "throughput" in flag.choices
    assert flag.default == "balanced"


@pytest.mark.parametrize(
    ("version", "flag", "default"),
    [
        ("0.19.1", "--gpu-memory-utilization", "0.9"),
        ("0.20.0", "--gpu-memory-utilization", "0.92"),
        ("0.17.1", "--swap-space", "4"),
        ("0.32.0", "--max-num-seqs", "None"),
        ("0.32.0", "--port", "8000"),
        ("0.32.0", "--uds", "None"),
        ("0.7.3", "--max-num-seqs", None),
    ],
)
def test_the_default_of_a_version(version: str, flag: str, default: str | None) -> None:
    found = flags.flag(version, flag)
    assert found is not None
    assert found.default == default


def test_when_a_flag_was() -> None:
    flag = flags.flag("0.17.0", "--swap-space")
    assert flag is not None
    assert flag.until == "0.17.1"
    assert flags.spans("--swap-space") == (("0.4.3", "0.17.1"),)
    assert flags.spans("--watermark") == (("0.24.0", flags.newest()),)
    assert flags.spans("--no-such-thing") == ()
    assert flags.spans("--no-guided-decoding-disable-fallback") == (("0.9.0", "0.10.2"),)
    assert flags.spans("--disable-log-requests")[:1] == (("0.4.3", "0.16.0"),)
    assert flags.spans("--disable-log-requests")[1][0] == "0.33.0"


def test_no_flag_where_nothing_is_known() -> None:
    assert flags.flag("0.2.0", "--max-num-seqs") is None
    assert flags.flag("main", "--max-num-seqs") is None
    assert flags.flag("0.32.0", "--swap-space") is None
    assert flags.parser("0.2.0") is None


def test_names_are_long_and_whole() -> None:
    assert {"--max-num-seqs", "--swap-space", "--host", "--speculative-model"} <= flags.names()
    assert not [name for name in flags.names() if not name.startswith("--")]


@pytest.mark.parametrize(
    ("version", "written", "nearest"),
    [
        ("0.32.0", "--max-nun-seqs", "--max-num-seqs"),
        ("0.32.0", "--gpu_memory_utilisation", "--gpu-memory-utilization"),
        ("0.32.0", "--tensor-paralel-size", "--tensor-parallel-size"),
        ("0.32.0", "--num-speculative-decoder-samples", "--speculative-config"),
    ],
)
def test_the_nearest_flag(version: str, written: str, nearest: str) -> None:
    near = flags.nearest(version, written)
    assert near[0] == nearest
    assert len(near) <= 3


def test_nothing_is_near_to_nonsense() -> None:
    assert flags.nearest("0.32.0", "--zzzz") == []
    assert flags.nearest("0.2.0", "--max-num-seqs") == []


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("--max-num-se", "--max-num-seqs"),
        ("--gpu-mem", "--gpu-memory-utilization"),
        ("--max-num", None),  # of several
        ("--max-num-seqs", None),  # whole
        ("--zzz", None),
        ("--", None),
        ("-t", None),
    ],
)
def test_the_parser_takes_the_beginning_of_one_flag(written: str, expected: str | None) -> None:
    parser = flags.parser("0.32.0")
    assert parser is not None
    assert parser.abbreviated(written) == expected


def test_the_parser_of_a_version_says_the_same_as_the_questions() -> None:
    for version in ("0.8.0", "0.11.2", "0.33.0", "0.7.3"):
        parser = flags.parser(version)
        assert parser is not None
        for flag in parser.flags:
            for spelling in (*flag.spellings, *flag.off):
                assert flags.has(version, spelling) is True
                assert flags.flag(version, spelling) == parser.flag(spelling) == flag


def test_what_replaces_a_flag() -> None:
    found = flags.replacement("--speculative-model")
    assert found is not None
    assert found.instead.startswith("--speculative-config")
    assert found.source
    swap = flags.replacement("--swap_space")
    assert swap is not None
    assert swap.instead.startswith("gone: ")
    assert flags.replacement("--max-num-seqs") is None
    no_form = flags.replacement("--no-disable-mm-preprocessor-cache")
    assert no_form is not None
    assert no_form.instead == "--mm-processor-cache-gb 0"


def test_every_flag_that_has_ended_is_said_to_be_replaced_or_gone() -> None:
    ended = {name for name in flags.names() if flags.has(flags.newest(), name) is False}
    assert sorted(name for name in ended if flags.replacement(name) is None) == []


def test_every_replacement_is_well_formed_and_names_what_is_there() -> None:
    rows = [line.split("\t") for line in (DATA / "replaced.tsv").read_text("utf-8").splitlines()[1:]]
    assert len({row[0] for row in rows}) == len(rows)
    for name, instead, source in rows:
        assert source, name
        if name.startswith("-"):
            assert flags.is_flag(name), name
        if not instead.startswith("gone: "):
            named = re.findall(r"(?<![\w-])--?[a-z][\w.-]*", instead)
            assert all(flags.has(flags.newest(), flag.rstrip(".")) for flag in named), (name, instead)


def test_environment_variables() -> None:
    variable = flags.environment("0.32.0", "VLLM_LOGGING_LEVEL")
    assert variable is not None
    assert variable.default == "INFO"
    assert flags.environment("0.32.0", "VLLM_USE_V1") is None
    assert flags.environment("main", "VLLM_LOGGING_LEVEL") is None
    assert "VLLM_LOGGING_LEVEL" in flags.nearest_environment("0.32.0", "VLLM_LOGING_LEVEL")


def test_a_default_that_is_another_on_each_machine_is_not_told() -> None:
    variable = flags.environment("0.32.0", "VLLM_OBJECT_STORAGE_SHM_BUFFER_NAME")
    assert variable is not None
    assert variable.default is None


@pytest.mark.parametrize("name", ["flags.tsv", "environment.tsv", "metrics.tsv"])
def test_the_tables_are_in_order_and_hold_nothing_of_the_machine_they_were_made_on(name: str) -> None:
    text = (DATA / name).read_text("utf-8")
    comment, samples, releases, *lines = text.splitlines()
    assert comment.startswith("# ")
    order = [*samples.removeprefix("# samples:").split(), *releases.removeprefix("# releases:").split()]
    assert order[-1] == flags.newest()
    assert "0.8.5.post1" in order
    keys = [[int(part) for part in re.findall(r"\d+", release)] for release in order]
    assert all(before < after for before, after in pairwise(keys))
    assert lines == sorted(lines, key=lambda line: line.split("\t")[0])
    assert not re.search(r"/(tmp/.|root|home|work)|site-packages", text)


def test_the_tables_are_small() -> None:
    assert sum(path.stat().st_size for path in DATA.glob("*.tsv")) < 300_000


def test_nothing_is_read_before_the_first_question() -> None:
    code = (
        "import pathlib, sys\n"
        "read = pathlib.Path.read_text\n"
        "def refuse(*a, **k): raise SystemExit('read too early')\n"
        "pathlib.Path.read_text = refuse\n"
        "from vllm_doctor.vllm import defaults, flags, metrics\n"
        "pathlib.Path.read_text = read\n"
        "assert flags.has('0.32.0', '--max-num-seqs')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


RELEASES = {end for spans in map(flags.spans, flags.names()) for span in spans for end in span}
"""Each release in which a flag came or went: between two of these the flags are the same."""
_READ_AS = {"int": int, "float": float, "size": int}


@pytest.mark.parametrize("words", settings_of_rules(), ids=" ".join)
def test_every_release_that_has_a_rules_flag_takes_its_value(words: list[str]) -> None:
    """The real parser of one release is asked by tests/lab/flags.py."""
    name, *values = words
    taken = [found for release in sorted(RELEASES) if (found := flags.flag(release, name)) and found.kind]
    assert taken, f"no release has {name}"
    for flag in taken:
        if flag.kind in ("on-off", "switch", "optional bool"):
            assert not values
            assert name in (*flag.spellings, *flag.off)
        else:
            assert len(values) == 1
            assert not flag.choices or values[0] in flag.choices
            assert _READ_AS.get(flag.kind or "", str)(values[0]) is not None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("0.90", 0.9, True),
        (True, "True", True),
        (True, 1, False),
        ('{"a": 1, "b": 2}', '{"b":2,"a":1}', True),
        ("fp8", "FP8", False),
        (None, None, True),
        (None, 0, False),
    ],
)
def test_values_are_the_same_whatever_their_spelling(one: object, other: object, same: bool) -> None:
    assert flags.is_same(one, other) is same

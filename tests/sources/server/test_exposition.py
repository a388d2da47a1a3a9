from __future__ import annotations

import math
import re
import time

import pytest

from tests.serving import HTML, NODE_EXPORTER, page
from vllm_doctor.model.errors import SourceError
from vllm_doctor.model.window import Sample
from vllm_doctor.rules.catalogue import Catalogue
from vllm_doctor.sources.server import exposition
from vllm_doctor.sources.server.exposition import Heads, parse

RUNNING, PREEMPTIONS = "vllm:num_requests_running", "vllm:num_preemptions_total"
WANTED = frozenset({RUNNING, PREEMPTIONS})
ENGINE = (("engine", "0"), ("model_name", "tiny"))


def values(text: str, wanted: frozenset[str] = WANTED) -> list[float]:
    return [sample.value for sample in parse(text, wanted).samples]


def labels_of(text: str) -> dict[str, str]:
    [sample] = parse(text, WANTED).samples
    return dict(sample.labels)


def test_a_real_page() -> None:
    read = parse(page("preemption", 0), WANTED)
    assert read.samples == (Sample(RUNNING, ENGINE, 20.0), Sample(PREEMPTIONS, ENGINE, 79.0))
    assert (read.is_metrics, read.has_vllm, read.refused_lines) == (True, True, 0)


def test_every_wanted_series_of_a_real_page(signals: Catalogue) -> None:
    text = page("healthy-busy", 3)
    read = parse(text, signals.metrics)
    names = [re.split("[{ ]", line)[0] for line in text.splitlines()]
    assert len(read.samples) == sum(name in signals.metrics for name in names) > 100
    assert read.refused_lines == 0


def test_what_nobody_wants_is_not_kept() -> None:
    assert {sample.name for sample in parse(page("preemption", 0), WANTED).samples} == WANTED


# ---- torn pages ---------------------------------------------------------------------------------------------------


def test_a_value_cut_in_the_middle_is_not_used() -> None:
    whole = f'{RUNNING}{{engine="0"}} 3\n{PREEMPTIONS}{{engine="0"}} 12345'
    assert values(whole + "\n") == [3, 12345]
    for cut in range(1, 6):
        read = parse(whole[:-cut], WANTED)
        assert [sample.value for sample in read.samples] == [3]
        assert read.refused_lines == 1
    assert values(whole) == [3]  # nothing shows that it is whole


def test_wherever_a_page_is_cut_it_never_gives_another_value(signals: Catalogue) -> None:
    text = page("preemption", 2)
    whole = set(parse(text, signals.metrics).samples)
    middle = text.index(f"{PREEMPTIONS}{{")
    for cut in range(middle - 60, middle + 120):
        assert set(parse(text[:cut], signals.metrics).samples) <= whole


def test_a_page_that_ends_well_has_no_torn_line() -> None:
    assert parse(f"{RUNNING} 3\n", WANTED).refused_lines == 0
    assert parse(f"{RUNNING} 3\n  ", WANTED).refused_lines == 0


# ---- values -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["NaN", "nan", "+Inf", "-Inf", "Inf", "inf"])
def test_what_is_no_finite_number_is_not_known(value: str) -> None:
    read = parse(f"{RUNNING} {value}\n{PREEMPTIONS} 7\n", WANTED)
    assert [(sample.name, sample.value) for sample in read.samples] == [(PREEMPTIONS, 7)]
    assert read.has_vllm
    assert all(math.isfinite(sample.value) for sample in read.samples)


@pytest.mark.parametrize(
    ("text", "value"), [("3", 3), ("3.5", 3.5), ("1.5e+09", 1.5e9), ("-1", -1), ("0", 0), ("1e-7", 1e-7), ("+4", 4)]
)
def test_numbers(text: str, value: float) -> None:
    assert values(f"{RUNNING} {text}\n") == [value]


def test_a_timestamp_behind_the_value() -> None:
    assert values(f'{RUNNING}{{engine="0"}} 3 1795171847000\n') == [3]


def test_the_bound_of_a_bucket_stays_a_label() -> None:
    name = "vllm:time_to_first_token_seconds_bucket"
    [sample] = parse(f'{name}{{engine="0",le="+Inf"}} 9\n', frozenset({name})).samples
    assert sample == Sample(name, (("engine", "0"), ("le", "+Inf")), 9.0)


@pytest.mark.parametrize("line", [RUNNING, f'{RUNNING}{{engine="0"}}', f"{RUNNING} ", f"{RUNNING} abc", f"{RUNNING}{{"])
def test_a_name_without_a_value_costs_its_line_only(line: str) -> None:
    read = parse(f'{PREEMPTIONS} 7\n{line}\n{PREEMPTIONS}{{a="b"}} 8\n', WANTED)
    assert [sample.value for sample in read.samples] == [7, 8]
    assert read.refused_lines == 1


def test_one_bad_line_among_thousands_costs_one_line() -> None:
    lines = [f'{RUNNING}{{engine="{i}"}} {i}' for i in range(3000)]
    lines[1234] = f'{RUNNING}{{engine="1234}} 5'
    read = parse("\n".join(lines) + "\n", WANTED)
    assert sorted(sample.value for sample in read.samples) == [i for i in range(3000) if i != 1234]
    assert read.refused_lines == 1


# ---- labels -------------------------------------------------------------------------------------------------------


def test_samples_without_labels() -> None:
    assert parse(f"{RUNNING} 3\n{PREEMPTIONS}{{}} 4\n", WANTED).samples == (
        Sample(RUNNING, (), 3.0),
        Sample(PREEMPTIONS, (), 4.0),
    )


def test_labels_are_sorted_so_that_their_order_does_not_matter() -> None:
    [one] = parse(f'{RUNNING}{{model_name="m",engine="0"}} 3\n', WANTED).samples
    [other] = parse(f'{RUNNING}{{engine="0",model_name="m"}} 3\n', WANTED).samples
    assert one == other


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"a\"b", 'a"b'),
        (r"a\\b", "a\\b"),
        (r"a\nb", "a\nb"),
        (r"C:\\new\\\"x\"", 'C:\\new\\"x"'),
        ("a}b", "a}b"),
        ("a{b", "a{b"),
        ("a,b=c", "a,b=c"),
        ("a # b", "a # b"),
        ("  a  ", "  a  "),
        ("", ""),
        ("Modèle–7B 🦙", "Modèle–7B 🦙"),
        ("\x1b[31mred\x1b[0m", "\x1b[31mred\x1b[0m"),
        ("<b>[bold]x[/bold]</b>", "<b>[bold]x[/bold]</b>"),
        ("\x85\u2028", "\x85\u2028"),  # line ends to Python, not to Prometheus
    ],
)
def test_what_a_label_may_hold(written: str, meant: str) -> None:
    assert labels_of(f'{RUNNING}{{model_name="{written}",engine="0"}} 3\n') == {"model_name": meant, "engine": "0"}


def test_a_raw_newline_in_a_label_costs_that_series_only() -> None:
    read = parse(f'{RUNNING}{{model_name="a\nb"}} 3\n{PREEMPTIONS} 7\n', WANTED)
    assert [(sample.name, sample.value) for sample in read.samples] == [(PREEMPTIONS, 7)]


# ---- the page as a whole ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("indent", ["  ", "\t", "        "])
def test_an_indented_page(indent: str, signals: Catalogue) -> None:
    text = page("preemption", 0)
    indented = "".join(f"{indent}{line}\n" for line in text.splitlines())
    assert parse(indented, signals.metrics) == parse(text, signals.metrics)


def test_a_page_with_carriage_returns(signals: Catalogue) -> None:
    text = page("preemption", 0)
    assert parse(text.replace("\n", "\r\n"), signals.metrics) == parse(text, signals.metrics)


@pytest.mark.parametrize("name", ["ray_vllm_num_requests_running", "ray_vllm:num_requests_running"])
def test_the_names_that_ray_gives(name: str) -> None:
    read = parse(f'{name}{{engine="0",ReplicaId="r1"}} 3\n', WANTED)
    assert read.samples == (Sample(RUNNING, (("ReplicaId", "r1"), ("engine", "0")), 3.0),)
    assert read.has_vllm


@pytest.mark.parametrize(
    ("text", "is_metrics"),
    [
        (NODE_EXPORTER, True),
        (page("no-log-stats", 0), True),
        ("", False),
        ("\n\n", False),
        (HTML, False),
        ('{"detail": "Not Found"}\n', False),
        ("vllm is a word\n", False),
        ("\x00\x01\x02\n", False),
    ],
    ids=["node_exporter", "vllm without statistics", "empty", "blank", "html", "json", "prose", "binary"],
)
def test_pages_without_vllm(text: str, is_metrics: bool) -> None:
    read = parse(text, WANTED)
    assert (read.samples, read.has_vllm, read.is_metrics) == ((), False, is_metrics)


def test_a_hundred_thousand_series() -> None:
    started = time.perf_counter()
    other = "".join(f'app_requests_total{{path="/{i}"}} {i}\n' for i in range(100_000))
    assert values(other + f"{RUNNING} 3\n") == [3]
    own = "".join(f'{PREEMPTIONS}{{engine="{i}"}} {i}\n' for i in range(100_000))
    assert len(values(own)) == 100_000
    assert time.perf_counter() - started < 60


def test_too_many_series() -> None:
    text = f'{RUNNING}{{engine="0"}} 1\n' * (exposition.MAX_SERIES + 1)
    with pytest.raises(SourceError, match="200,001 series") as raised:
        parse(text, WANTED)
    assert raised.value.kind == "too-large"


HEADS = 'a{x="1"} 1\na{x="2"} 2\nb 3\n'


@pytest.mark.parametrize(
    "again",
    [
        HEADS,
        HEADS.replace(" 2\n", " 7.5\n"),
        HEADS + 'a{x="3"} 4\n',
        'a{x="} 5"} 1\n' + HEADS,
        HEADS.replace("b 3", "b NaN"),
        HEADS.replace("b 3", "b 3 1700000000000"),
        HEADS.replace("b 3", "b x"),
        HEADS.replace('a{x="1"} 1', "a{x= 1"),
        "",
        "b 3",
    ],
)
def test_a_page_that_begins_as_one_before_gives_the_same(again: str) -> None:
    heads: Heads = {}
    wanted = frozenset("ab")
    parse("vllm:other 3\n" + HEADS, wanted, heads)
    again = "vllm:other 3\n" + again
    first, kept = parse(again, wanted), parse(again, wanted, heads)
    assert sorted(kept.samples, key=str) == sorted(first.samples, key=str)
    assert (kept.is_metrics, kept.has_vllm) == (first.is_metrics, first.has_vllm)


@pytest.mark.parametrize("page", ['a{x="1"}1\n 5\n', 'a {x="1"}1\na 5\n'])
def test_a_line_without_a_space_before_its_value_is_the_head_of_no_other(page: str) -> None:
    heads: Heads = {}
    first, again = (parse(page, frozenset("a"), heads).samples for _ in range(2))
    assert sorted(again, key=str) == sorted(first, key=str)


def test_what_is_remembered_of_pages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposition, "MAX_SERIES", 100)
    heads: Heads = {}
    for number in range(50):
        parse("".join(f'a{{x="{number}-{n}"}} 1\n' for n in range(20)), frozenset("a"), heads)
    assert len(heads) <= 140


# ---- lines that cost no more than themselves ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        f'{RUNNING}{{engine="0", ="x"}} 1',  # prometheus_client: IndexError
        f"{RUNNING} {'9' * 400}",
        f"{RUNNING} -{'9' * 400}",
        f"{RUNNING} 1e308",
        f"{RUNNING} 1e31",
        f'{RUNNING}{{a="{"x" * 40_000}"}} 1',
    ],
)
def test_a_bad_line_costs_a_line_and_is_counted(line: str) -> None:
    heads: Heads = {}
    for _ in range(2):  # read anew, and by its head
        read = parse(f'{PREEMPTIONS} 7\n{line}\n{PREEMPTIONS}{{a="b"}} 8\n', WANTED, heads)
        assert [sample.value for sample in read.samples] == [7, 8]
        assert read.refused_lines == 1

"""What is written in a known form is read as it was meant, whatever it holds: hypothesis finds and shrinks."""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.fuzz.harness import CANARY, clean, file_of
from vllm_doctor.expr import nodes, parser, scalar
from vllm_doctor.expr.nodes import TruthNode, ValueNode
from vllm_doctor.launch import source
from vllm_doctor.launch.unexpanded import without_marks
from vllm_doctor.model.reading import Known, Reading, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.model.report import Change
from vllm_doctor.recording import archive, metrics
from vllm_doctor.sources.server import exposition
from vllm_doctor.text import redact
from vllm_doctor.vllm import command_line

EXAMPLES = os.environ.get("EXAMPLES")
"""How many to try, at random: EXAMPLES=10000 searches for long; else the same few each time, and on each machine."""
FEW = settings(
    max_examples=int(EXAMPLES or 60),
    derandomize=EXAMPLES is None,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), max_size=20)
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


# ---- expositions ----------------------------------------------------------------------------------------------------


@FEW
@given(
    st.lists(
        st.tuples(st.dictionaries(NAMES, TEXTS, max_size=3), st.floats(-1e15, 1e15)),
        max_size=6,
    )
)
def test_labels_of_any_text_are_read_as_they_were_written(series: list[tuple[dict[str, str], float]]) -> None:
    lines = "".join(f"vllm:x{{{_written(labels)}}} {value!r}\n" for labels, value in series)
    heads: exposition.Heads = {}
    wanted = [("vllm:x", tuple(sorted(labels.items())), value) for labels, value in series]
    for _ in range(2):  # alone, and as the page after itself
        page = exposition.parse(lines, frozenset({"vllm:x"}), heads)
        assert sorted((s.name, s.labels, s.value) for s in page.samples) == sorted(wanted)


def _written(labels: Mapping[str, str]) -> str:
    escaped = {k: v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for k, v in labels.items()}
    return ",".join(f'{name}="{text}"' for name, text in escaped.items())


# ---- commands -------------------------------------------------------------------------------------------------------

VALUES = TEXTS.filter(lambda text: not text.startswith("-") and text.strip() != "" and without_marks(text) == text)
COMMANDS = st.lists(
    st.tuples(st.sampled_from(["--served-model-name", "--chat-template", "--seed"]), VALUES), max_size=4
)
CHANGES = {0: [Change("--max-num-seqs", None, 7, "a")]}


def _words(flags: Sequence[tuple[str, str]]) -> list[str]:
    return ["vllm", "serve", "some/model", *(word for flag in dict(flags).items() for word in flag)]


@FEW
@given(COMMANDS)
def test_a_shell_gives_the_words_that_were_quoted(flags: list[tuple[str, str]]) -> None:
    words = _words(flags)
    opened = source.of_text("x", shlex.join(words))
    assert opened.document is not None
    assert [word.text for word in opened.document.written[0].words] == words


@FEW
@given(COMMANDS, st.sampled_from(["Deployment", "Pod"]))
def test_a_manifest_gives_the_words_that_it_holds_and_so_does_its_patch(
    flags: list[tuple[str, str]], kind: str
) -> None:
    words = _words(flags)
    assume(not any(hole in word for word in words for hole in ("{{", "$")))  # a chart fills these, or Kubernetes
    pod: dict[str, Any] = {"containers": [{"name": "v", "image": "vllm/vllm-openai:v0.11.0", "command": words}]}
    spec = pod if kind == "Pod" else {"template": {"metadata": {"labels": {}}, "spec": pod}}
    version = "v1" if kind == "Pod" else "apps/v1"
    manifest = {"apiVersion": version, "kind": kind, "metadata": {"name": "v"}, "spec": spec}
    opened = source.of_text("x", yaml.safe_dump(manifest))
    assert opened.document is not None
    assert [word.text for word in opened.document.written[0].words] == words
    for patch in opened.document.patched(CHANGES):
        if patch.problem is None:
            yaml.safe_load("\n".join(patch.lines))


@FEW
@given(COMMANDS, st.booleans())
def test_a_flag_that_is_set_has_its_value_and_the_others_keep_theirs(flags: list[tuple[str, str]], had: bool) -> None:
    words = [*_words(flags), *(["--max-num-seqs", "9"] if had else [])]
    now = command_line.changed(words, {"--max-num-seqs": ("--max-num-seqs", "7")}, ())
    before, after = (command_line.parse(each, lambda path: Reason.DENIED).flags for each in (words, now))
    assert after == {**before, "--max-num-seqs": 7.0}


# ---- conditions -----------------------------------------------------------------------------------------------------

SIGNALS = st.sampled_from(["a", "b", "c"])
NUMBERS = st.floats(0, 1e12, allow_nan=False).map(nodes.Number)
VALUE_NODES: st.SearchStrategy[ValueNode] = st.recursive(
    SIGNALS.map(nodes.Name) | NUMBERS,
    lambda inner: (
        st.builds(nodes.Arithmetic, inner, st.sampled_from("+-*/"), inner)
        | st.builds(nodes.FirstKnown, st.tuples(inner, inner))
    ),
    max_leaves=6,
)
COMPARISONS = st.builds(
    nodes.Compare,
    SIGNALS.map(nodes.Name),
    st.sampled_from(["<", "<=", ">", ">=", "==", "!="]),
    SIGNALS.map(nodes.Name) | NUMBERS,
)
CONDITIONS: st.SearchStrategy[TruthNode] = st.recursive(
    COMPARISONS,
    lambda inner: (
        st.builds(nodes.Not, inner)
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: nodes.And(tuple(parts)))
        | st.lists(inner, min_size=2, max_size=3).map(lambda parts: nodes.Or(tuple(parts)))
    ),
    max_leaves=8,
)
READINGS = st.sampled_from([Known(0.0), Known(1.0), Known(-2.5), Known(1e12), Unknown(Reason.IDLE)])


@FEW
@given(CONDITIONS)
def test_a_condition_is_read_as_it_is_written(node: TruthNode) -> None:
    written = nodes.text(node)
    assert nodes.text(parser.condition(written)) == written


@FEW
@given(VALUE_NODES)
def test_a_formula_is_read_as_it_is_written(node: ValueNode) -> None:
    written = nodes.text(node)
    assume(len(written) < 500)
    assert parser.formula(written) == node


@FEW
@given(CONDITIONS, st.fixed_dictionaries(dict.fromkeys("abc", READINGS)), st.sampled_from("abc"), READINGS)
def test_what_an_unknown_signal_does_not_decide_no_value_of_it_changes(
    node: TruthNode, values: dict[str, Reading], name: str, value: Reading
) -> None:
    """Kleene's logic: true and false with an unknown are so whatever it is."""
    judge = scalar.truth(node)
    unknown: dict[str, Reading] = {**values, name: Unknown(Reason.ABSENT)}
    before = judge(unknown.__getitem__, [])
    if before is not None:
        assert judge({**values, name: value}.__getitem__, []) == before


# ---- recordings, texts ----------------------------------------------------------------------------------------------


@FEW
@given(st.lists(st.tuples(st.floats(0.001, 1e5), st.text(st.characters(codec="utf-8"), max_size=60)), max_size=5))
def test_scrapes_of_any_text_are_in_the_recording_as_they_were(answers: list[tuple[float, str]]) -> None:
    writer = metrics.MetricsWriter()
    at, told = 0.0, []
    for seconds, page in answers:
        at = round(at + max(0.01, seconds), 3)
        told.append((at, page))
        writer.add(at, page)
    assume(told)
    read = metrics.of_file(writer.ended(), "r")
    assert list(zip(read.times, [page.decode() for page in read.pages], strict=True)) == told


@FEW
@given(
    st.dictionaries(
        st.sampled_from(["recording.json", "1-server/version.json", "2-log/000.log"]), st.binary(max_size=2000)
    )
)
def test_an_archive_holds_the_parts_that_were_packed(parts: dict[str, bytes]) -> None:
    parts["recording.json"] = b"{}"
    assert archive.read(file_of(archive.packed(parts), "packed.tar.gz")) == parts


@FEW
@given(
    TEXTS,
    st.sampled_from(["password", "api_key", "HF_TOKEN", "client_secret"]),
    st.sampled_from(['{{"{name}": "{secret}"}}', "{name}={secret}", "--x-{name} {secret}", "{name}: {secret}"]),
)
def test_a_secret_stays_in_no_text_around_it(around: str, name: str, form: str) -> None:
    masked: Counter[str] = Counter()
    text = redact.text(f"{around} {form.format(name=name, secret=CANARY)} {around}", masked)
    assert CANARY not in text
    clean(text)
    assert sum(masked.values())


@FEW
@given(
    st.recursive(
        st.none() | st.booleans() | TEXTS,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    )
)
def test_any_values_are_written_as_yaml_that_is_read_as_the_same(value: Any) -> None:
    from vllm_doctor.text import yaml as written

    text = "\n".join([*written.dump({"key": value}), ""])
    assert json.dumps(yaml.safe_load(text), sort_keys=True) == json.dumps({"key": value}, sort_keys=True)

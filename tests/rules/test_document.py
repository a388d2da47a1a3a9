from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vllm_doctor.model.errors import DocumentError
from vllm_doctor.rules import document
from vllm_doctor.rules.table import Table


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "file.yaml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(folder: Path, text: str | bytes) -> Table:
    return document.read(written(folder, text))


def refusal(folder: Path, text: str | bytes) -> str:
    """What is said of the text, without the folder: `file.yaml:3: ...`."""
    with pytest.raises(DocumentError) as refused:
        read(folder, text)
    return str(refused.value).removeprefix(f"{folder}/")


LAUGHS = 'a: &a ["lol", "lol"]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a]\nc: [*b, *b, *b, *b, *b, *b, *b, *b, *b]\n'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("a: 1\nb: 2\na: 3\n", "file.yaml:3: key 'a' stands twice (first in line 1)", id="duplicate key"),
        pytest.param("t:\n  a: 1\n  a: 1\n", "file.yaml:3: key 'a' stands twice (first in line 2)", id="duplicate in"),
        pytest.param(LAUGHS, "file.yaml:1: aliases (*name) are not allowed", id="billion laughs"),
        pytest.param("a: &a\n  b: *a\n", "file.yaml:1: aliases (*name) are not allowed", id="an alias of itself"),
        pytest.param("a: 1\nb: !!python/name:os.system ''\n", "file.yaml:2: tag ", id="python tag"),
        pytest.param("b: !!binary aGk=\n", "file.yaml:1: tag ", id="binary"),
        pytest.param("b: !mine text\n", "file.yaml:1: tag ", id="a tag of one's own"),
        pytest.param("!mine {a: 1}\n", "file.yaml:1: must be a mapping", id="a tag on the whole file"),
        pytest.param("a: 1\n!mine b: 1\n", "file.yaml:2: a key must be a plain text", id="a tag on a key"),
        pytest.param("a: 1\nb: !mine {c: 1}\n", "file.yaml:2: tag '!mine'", id="a tag on a mapping"),
        pytest.param("a: 1\nb: !!set {c}\n", "file.yaml:2: tag 'tag:yaml.org,2002:set'", id="a set"),
        pytest.param("a: 1\nb: !mine [c]\n", "file.yaml:2: tag '!mine'", id="a tag on a sequence"),
        pytest.param(f"a: {'[' * 30}{']' * 30}\n", "file.yaml:1: nested deeper than", id="deep"),
        pytest.param(f"a: {'{a: ' * 30}1{'}' * 30}\n", "file.yaml:1: nested deeper than", id="deep mappings"),
        pytest.param(f"a: {'[' * 201}", "file.yaml:1: more than 200 open brackets", id="201 open brackets"),
        pytest.param(f"a: 1\nb: {'[' * 100_000}", "file.yaml:2: more than 200 open brackets", id="100,000 [: no crash"),
        pytest.param(f"a: {'{a: ' * 100_000}", "file.yaml:1: more than 200 open brackets", id="100,000 {: no crash"),
        pytest.param("a:\n" + "- " * 100_000, "file.yaml:2: more than 50 lists in one line", id="100,000 -: no crash"),
        pytest.param("? " * 100_000, "file.yaml:1: more than 50 lists in one line", id="100,000 ?: no crash"),
        pytest.param(f"# {']' * 999}\na: {'[' * 999}", "file.yaml:2: more than 200 open", id="closed before opened"),
        pytest.param("a: 1\n!!python/name:os.system b: 1\n", "file.yaml:2: a key must", id="a python tag on a key"),
        pytest.param(f"a: {'x' * 1_000_001}\n", "file.yaml: larger than 1,000,000 bytes", id="large"),
        pytest.param(b"a: \xff\xfe\n", "file.yaml: is not UTF-8 text", id="not UTF-8"),
        pytest.param("- a\n- b\n", "file.yaml:1: must be a mapping", id="a list"),
        pytest.param("only text\n", "file.yaml:1: must be a mapping", id="a text"),
        pytest.param("", "file.yaml:1: must be a mapping", id="empty"),
        pytest.param("[a]: 1\n", "file.yaml:1: a key must be a plain text", id="a list as key"),
        pytest.param("a: 1\n---\nb: 2\n", "file.yaml:2: ", id="two documents"),
        pytest.param("a: 1\nb: [\n", "file.yaml:3: ", id="syntax"),
        pytest.param("a: 1\nb: c: d\n", "file.yaml:2: ", id="a colon in a text"),
        pytest.param("a: 1\n\tb: 2\n", "file.yaml:2: ", id="a tab"),
        pytest.param("a: '\x07'\n", "file.yaml: ", id="a control character"),
    ],
)
def test_a_mistake_is_told_with_file_and_line(text: str | bytes, expected: str, tmp_path: Path) -> None:
    said = refusal(tmp_path, text)
    assert said.startswith(expected)
    assert "\n" not in said


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: !!python/object/apply:os.mkdir ['{file}']\n", id="apply"),
        pytest.param("a: !!python/object/apply:os.mkdir\n  args: ['{file}']\n", id="apply with a mapping"),
        pytest.param("a: !!python/object/new:os.mkdir ['{file}']\n", id="new"),
        pytest.param("a: !!python/object/apply:int '3'\n", id="apply that ends like a plain type"),
        pytest.param("a: [!!python/object/apply:os.mkdir ['{file}']]\n", id="in a list"),
        pytest.param("!!python/object/apply:os.mkdir ['{file}']\n", id="the whole file"),
    ],
)
def test_python_tags_are_refused_and_nothing_runs(text: str, tmp_path: Path) -> None:
    file = tmp_path / "ran"
    with pytest.raises(DocumentError, match=r"file\.yaml:1: "):
        read(tmp_path, text.replace("{file}", str(file)))
    assert not file.exists()


def test_a_missing_file_and_a_folder_are_told() -> None:
    with pytest.raises(DocumentError, match=r"^no/such\.yaml: cannot be read: "):
        document.read(Path("no/such.yaml"))
    with pytest.raises(DocumentError, match=r": cannot be read: "):
        document.read(Path(__file__).parent)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("Yes", "Yes"), ("NO", "NO"),
        ("true", True), ("False", False), ("null", None), ("~", None), ("'true'", "true"),
        ("12", 12), ("-3", -3), ("1_000", 1000), ("0x10", 16), ("0.5", 0.5), ("'0.5'", "0.5"), ("0.11.1", "0.11.1"),
        ("2024-01-02", "2024-01-02"), ("1:30", "1:30"), ("--flag", "--flag"), ("[1, no]", [1, "no"]),
    ],
)  # fmt: skip
def test_values(text: str, expected: object, tmp_path: Path) -> None:
    found = read(tmp_path, f"key: {text}\n")["key"]
    assert found == expected
    assert type(found) is type(expected)


def test_brackets_that_are_closed_do_not_add_up(tmp_path: Path) -> None:
    assert len(read(tmp_path, "a:\n" + "- [{}]\n" * 500)["a"]) == 500


def test_a_table_knows_the_line_of_each_key(tmp_path: Path) -> None:
    table = read(tmp_path, "# comment\na: 1\nt:\n  b: 2\n  c: 3\n")
    assert table.lines == {"a": 2, "t": 3}
    assert table.table("t").lines == {"b": 4, "c": 5}
    with pytest.raises(DocumentError, match=r"file\.yaml:5: wrong"):
        table.table("t").fail("wrong", "c")


@pytest.mark.parametrize(
    ("text", "ask", "expected"),
    [
        pytest.param("a: 1\nwhy: 2\n", lambda t: t.text("why"), "file.yaml:2: 'why' must be a text", id="text"),
        pytest.param("a: 1\n", lambda t: t.text("why"), "file.yaml:1: 'why' must be a text", id="text: missing"),
        pytest.param("why: ' '\n", lambda t: t.text("why"), "file.yaml:1: 'why' must be a text", id="text: blank"),
        pytest.param("a: 1\nl: x\n", lambda t: t.texts("l"), "file.yaml:2: 'l' must be a list of texts", id="texts"),
        pytest.param("l: [1]\n", lambda t: t.texts("l"), "file.yaml:1: 'l' must be a list of texts", id="texts: 1"),
        pytest.param("t: x\n", lambda t: t.table("t"), "file.yaml:1: 't' must be a mapping", id="table"),
        pytest.param("t: [x]\n", lambda t: list(t.tables("t")), "file.yaml:1: 't' must be a list of", id="tables"),
        pytest.param(
            "a: 1\nk: z\n",
            lambda t: t.one_of("k", ("x", "y")),
            "file.yaml:2: 'k' must be one of x, y; it is 'z'",
            id="one of",
        ),
        pytest.param(
            "a: 1\nexplain: z\n",
            lambda t: t.allow("a", "explains"),
            "file.yaml:2: unknown key 'explain'; meant 'explains'?",
            id="unknown key: near",
        ),
        pytest.param(
            "zzz: 1\n", lambda t: t.allow("a", "b"), "file.yaml:1: unknown key 'zzz'; known: a, b", id="unknown key"
        ),
    ],
)
def test_what_is_asked_of_a_table_and_is_not_so(
    text: str, ask: Callable[[Table], object], expected: str, tmp_path: Path
) -> None:
    table = read(tmp_path, text)
    with pytest.raises(DocumentError) as refused:
        ask(table)
    assert str(refused.value).removeprefix(f"{tmp_path}/").startswith(expected)


def test_what_is_not_given_has_its_default(tmp_path: Path) -> None:
    table = read(tmp_path, "a: 1\nt:\n")
    assert table.text("why", "so") == "so"
    assert table.texts("see") == ()
    assert list(table.tables("remedies")) == []
    assert table.table("t") == table.table("when") == {}
    assert table.one_of("k", ("x", "y"), "x") == "x"


@pytest.mark.parametrize("number", ["9" * 400, f"0x{'f' * 400}", "-" + "9" * 400, "1.0e+400", "1.0e+31"])
def test_a_number_that_nothing_has_so_many_of_is_told(number: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, f"a: 1\nb: {number}\n").startswith("file.yaml:2: a number larger than 1e+30")

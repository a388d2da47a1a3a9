from __future__ import annotations

import time

import pytest

from vllm_doctor.launch.shell import commands, words
from vllm_doctor.launch.start import Flaw
from vllm_doctor.launch.unexpanded import as_written, is_marked


def read(text: str) -> list[list[str]]:
    return [[as_written(word.text) for word in simple.words] for simple in commands(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b  c", [["a", "b", "c"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("a \\\n  b \\\n c", [["a", "b", "c"]]),
        ("a b\\\nc", [["a", "bc"]]),
        ("a; b && c || d | e & f\ng", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("a > log 2>&1 < in &", [["a"]]),
        ("a &> log b", [["a", "b"]]),
        ("a # b c\nd", [["a"], ["d"]]),
        ("a --x=81.. (cut) --y 1", [["a", "--x=81..", "--y", "1"]]),
        ("a (b c)\nd", [["a"], ["d"]]),
        ("f() { a; }", [["f"], ["a"]]),
        ("a b#c '#d'", [["a", "b#c", "#d"]]),
        ('a \'{"x": 1,\n "y": 2}\' b', [["a", '{"x": 1,\n "y": 2}', "b"]]),
        ('a "x\\"y" "p\\q" "m\\\nn"', [["a", 'x"y', "p\\q", "mn"]]),
        ("a $'it\\'s' $\"t\"", [["a", "it's", "t"]]),
        ("X=1 Y='a b' a", [["a"]]),
        ("X=1\na $X ${X} \"$X\" '$X'", [["a", "1", "1", "1", "$X"]]),
        ("X='b c'\na $X \"$X\"", [["a", "b", "c", "b c"]]),
        ("X=b; X+=c; a $X", [["a", "bc"]]),
        ('X=(b "c d" # why\n e)\nX+=(f)\na "${X[@]}"', [["a", "b", "c d", "e", "f"]]),
        ('X=(b)\nif y; then\nX+=(c)\nfi\na "${X[@]}"', [["y"], ["fi"], ["a", "b", "${X[@]}"]]),
        ('X=(b)\nif y; then\nX=(c)\nfi\na "${X[@]}"', [["y"], ["fi"], ["a", "${X[@]}"]]),
        ("a --b <your-host> --c=<a b> d", [["a", "--b", "<your-host>", "--c=<a b>", "d"]]),
        ("a <in >out b<c>d", [["a", "b"]]),
        ("MAX_TOKENS=8\nAPI_TOKENS=9\na $MAX_TOKENS $API_TOKENS", [["a", "8", "$API_TOKENS"]]),
        ("a ${X:-b} $(c | d) `e` $1 $", [["a", "${X}", "$(…)", "$(…)", "$1", "$"]]),
        ("X=1\nif true; then X=2; fi\na $X", [["true"], ["fi"], ["a", "$X"]]),
        ("cat <<E >x\na b\nE\nc", [["cat"], ["c"]]),
        ("cat <<-'E'\n\ta\n\tE\nc", [["cat"], ["c"]]),
        ("$ a b\nme@host:~$ c", [["a", "b"], ["c"]]),
        ("(cd x; a)", [["cd", "x"], ["a"]]),
        ("a \\ # b", [["a", " #", "b"]]),
        ("a \\ # don't\nb", [["a", " "], ["b"]]),
        ("", []),
        ("# nothing", []),
    ],
)
def test_what_a_shell_runs(text: str, expected: list[list[str]]) -> None:
    assert read(text) == expected


def test_what_is_not_in_the_text_is_marked() -> None:
    [simple] = commands("a $X \"$X\" '$X' ${Y:-s3cret}")
    assert [is_marked(word.text) for word in simple.words] == [False, True, True, False, True]
    assert [word.is_split for word in simple.words] == [False, True, False, False, True]
    assert "s3cret" not in repr(simple)


@pytest.mark.parametrize(
    ("text", "expected", "defaults"),
    [
        ("a ${TP:-2} ${M-Qwen/Qwen3-8B} ${D:=bfloat16}", ["a", "2", "Qwen/Qwen3-8B", "bfloat16"], ("TP", "M", "D")),
        ('TP="${TP:-${GPUS:-4}}"\nN=${TP}\na "$N"', ["a", "4"], ("GPUS", "TP")),
        (': "${LEN:=32k}"\na $LEN', ["a", "32k"], ("LEN",)),
        ('a "${KEY:-abc}" ${HF_TOKEN:-def}', ["a", "${KEY}", "${HF_TOKEN}"], ()),
        ("a ${X:-S3cret-0123} ${X:+y} ${X%.*} ${X:-$(b)}", ["a", *["${X}"] * 4], ()),
        ("X=3\na ${X:-2}", ["a", "3"], ()),
        ("if b; then X=3; fi\na ${X:-2}", ["a", "${X}"], ()),
        ("a ${1:-2}", ["a", "2"], ("1",)),
    ],
)
def test_what_a_variable_falls_back_to(text: str, expected: list[str], defaults: tuple[str, ...]) -> None:
    *_, simple = commands(text)
    assert [as_written(word.text) for word in simple.words] == expected
    assert simple.defaults == defaults


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('set -- a b "c d"\nexec "$@"', ["exec", "a", "b", "c d"]),
        ('set -e\nset -- a "$X"\nset -- "$@" e\nexec "$@"', ["exec", "a", "$X", "e"]),
        ('set -- a\nif b; then\nset -- "$@" c\nfi\nexec "${@}"', ["exec", "a", "$@"]),
        ('a "$@"', ["a", "$@"]),
    ],
)
def test_a_scripts_own_arguments(text: str, expected: list[str]) -> None:
    *_, simple = commands(text)
    assert [as_written(word.text) for word in simple.words] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a --b {{ c }} '{{ d.e }}/f' \"{{ g | default('h') }}\"", ["a", "--b", "{{c}}", "{{d.e}}/f", "{{g}}"]),
        ("a \\\n{% if b %}\n  --b \\\n{% endif %}\n  --c", ["a", "{%…%}", "--c"]),
        ("a {% if b %}--b{% else %}--d{% endif %} --c", ["a", "{%…%}", "--c"]),
        ("{% if b %}\na --c\n{% endif %}\n", ["a", "--c"]),
        ('a \'{"b": {"c": {}}}\' {d} {', ["a", '{"b": {"c": {}}}', "{d}", "{"]),
    ],
)
def test_templates(text: str, expected: list[str]) -> None:
    [simple] = commands(text)
    assert [as_written(word.text) for word in simple.words] == expected


def test_a_secret_variable_is_not_put_in() -> None:
    assert read("export HF_TOKEN=abc\na $HF_TOKEN")[-1] == ["a", "$HF_TOKEN"]


def test_variables_before_a_command_and_exported_ones() -> None:
    *_, simple = commands("A=1\nexport B=2 C\nC=3\nD=4 E=$F run")
    assert simple.environment == {"B": "2", "C": "3", "D": "4", "E": None}


@pytest.mark.parametrize(
    ("text", "kind", "line"),
    [
        ("a \\ # b\n--c", Flaw.COMMENT_AFTER_BACKSLASH, 1),
        ("a \\\n--b \\   # c\n--d", Flaw.COMMENT_AFTER_BACKSLASH, 2),
        ("a \\# b\n--c", Flaw.COMMENT_AFTER_BACKSLASH, 1),
        ("a \\ \n--c", Flaw.SPACE_AFTER_BACKSLASH, 1),
        ("a \\\t", Flaw.SPACE_AFTER_BACKSLASH, 1),
        ("a \\\n  # b\n--c", Flaw.COMMENT_IN_COMMAND, 2),
        ("a --b # c \\\n--d", Flaw.COMMENT_IN_COMMAND, 1),
        ("a \\\n\n--d", Flaw.MISSING_BACKSLASH, 2),
        ("a --b 'c\n--d", Flaw.UNBALANCED_QUOTE, 1),
        ('a \\\n--b "c\n--d', Flaw.UNBALANCED_QUOTE, 2),
    ],
)
def test_where_a_command_ends_too_early(text: str, kind: Flaw, line: int) -> None:
    broken = next(commands(text)).broken
    assert broken is not None
    assert (broken.kind, broken.line) == (kind, line)


@pytest.mark.parametrize("text", ["a # b\nc", "a \\\n b\nc", "a 'x\\ ' \\\n b", "a\\ b c", 'a "\\ # b"'])
def test_where_it_does_not(text: str) -> None:
    assert next(commands(text)).broken is None


def test_words_alone() -> None:
    found, broken = words("--a $X; 'b c' # d \\\n e > f")
    assert [word.text for word in found] == ["--a", "$X;", "b c", "#", "d", "e", ">", "f"]
    assert broken is None


@pytest.mark.parametrize(
    "piece",
    [
        "(",
        "$(",
        "${",
        "`",
        "a=(",
        '"$(',
        "\\ #'\n",
        "<<E\n",
        "if\n",
        "a\\\n",
        "'",
        '"',
        "$a",
        "a;",
        "# \\\n",
        "{{",
        "{%",
        "a {% if %}\n",
        "${a:-",
        "${a:-$a}",
        "set -- $@\n",
    ],
)
def test_a_hostile_text_does_not_take_long(piece: str) -> None:
    started = time.process_time()
    list(commands(piece * (100_000 // len(piece))))
    assert time.process_time() - started < 4

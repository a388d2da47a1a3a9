"""What a shell makes of a text: the commands it runs, one after the other, with what the text itself expands.

Read as bash does; nothing is executed, and no variable of our own environment is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from vllm_doctor.launch import budget
from vllm_doctor.launch.start import Flaw, Word
from vllm_doctor.launch.unexpanded import is_marked, mark, template_name
from vllm_doctor.text.secret_names import is_secret

Variables = dict[str, "str | tuple[Word, ...] | None"]
"""What the text sets: a text, an array, or None for what depends on how it runs. "@": its own arguments."""

_NAME = re.compile(r"[A-Za-z_]\w*")
_ARGUMENT = re.compile(r"\d{1,3}|[@*]")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
_BLANKS = " \t"
_BLANK_RUN = re.compile(r"[ \t]+")
_LETTERS = re.compile(r"[^ \t\r\n;&|()#<>\\'\"$`{]+")
"""What means itself wherever it stands."""
_QUOTED_LETTERS = re.compile(r'[^"\\$`{]+')
_ANSI_LETTERS = re.compile(r"[^'\\]+")
_ENDS = ";&|\n()"
_BROKEN = re.compile(r"[ \t]+(?=\n|$|#)")
_REMARK = re.compile(r"\([A-Za-z][^()\n;|&$`\"']{0,80}\)(?=[ \t\n]|$)")
_PLACEHOLDER = re.compile(r"<[A-Za-z](?:[\w./:-]|[ ](?![ ])){0,60}[\w.]>(?=[\s'\"/:,]|$)")
"""<your-model>, as documentation writes what the reader has to fill in; no shell would find such a file."""
_TEMPLATE = re.compile(r"\{\{[^{}\n]{0,300}\}\}")
"""Jinja's {{ model }}, as Ansible and others fill it in."""
_CONTROL = re.compile(r"\{%[-+]?[ \t]*(?P<word>\w*)[^{}\n]{0,300}%\}")
_BLOCKS = {
    "if": re.compile(r"\{%[-+]?[ \t]*(end)?if\b[^{}\n]{0,300}%\}"),
    "for": re.compile(r"\{%[-+]?[ \t]*(end)?for\b[^{}\n]{0,300}%\}"),
}
_MOST_OF_A_BLOCK = 800
_LINE_END = re.compile(r"[ \t]*\n")
_OPERATOR = re.compile(r":?([-=?+])(.*)", re.DOTALL)
_DEFAULT = re.compile(
    r"(?:\d[\d.]{0,11}[A-Za-z]{0,3}|[a-z]{2,20}\d{0,2}(?:[_-][a-z]{1,20}\d{0,2}){0,6}|fp8_e\dm\d[a-z]{0,4}"
    r"|(?:[\w.-]{1,80})?(?:/[\w.:@-]{1,80}){1,12})?"
)
"""What a variable falls back to, where that can be no secret: a number, a plain word, the name of a model, a path."""
_MOST_NESTED = 4
_PROMPT = re.compile(r"(?:[\w.-]+@[\w.-]\S*)?[$%]")
_SIGNS = re.compile(r"[\"'`$(<>|&;\\]")
_OPENS = frozenset({"if", "for", "while", "until", "case", "select"})
_CLOSES = frozenset({"fi", "done", "esac"})
_SKIPPED = frozenset({"then", "do", "else", "elif", "if", "while", "until", "!", "{", "}"})
_DECLARES = frozenset({"export", "declare", "typeset", "local", "readonly"})
_ANSI = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


@dataclass(frozen=True, slots=True)
class Broken:
    """Where and why a command ends although the author went on."""

    kind: Flaw
    line: int


@dataclass
class Simple:
    """One command: its words, the variables set before it or exported earlier, and how it ended.

    `ended`: the operator, or "\\n". `rest`: of a quote that nothing closes, the text from there on.
    """

    line: int
    words: list[Word] = field(default_factory=list)
    environment: dict[str, str | None] = field(default_factory=dict)
    assignments: dict[str, Word] = field(default_factory=dict)
    """The words NAME=VALUE before it."""
    ended: str = "\n"
    last_line: int = 0
    broken: Broken | None = None
    rest: str = ""
    defaults: tuple[str, ...] = ()
    """The variables that are not set in the text, and stand here as what they fall back to."""


def commands(
    text: str,
    line: int = 1,
    variables: Mapping[str, str | None] | None = None,
    arguments: Sequence[Word] | None = None,
) -> Iterator[Simple]:
    """The commands of a script that begins in this line; `variables` are set before it, and it gets the `arguments`."""
    given: Variables = dict(variables or {})
    exported = dict.fromkeys(given)
    if arguments is not None:
        given |= _positional(arguments)
    depth = 0
    reader = _Reader(text, line, given)
    while (found := reader.command()) is not None:
        simple, assigned = found
        depth += _led(simple, assigned)
        first = simple.words[0].text if simple.words else ""
        depth += (first in _OPENS) - (first in _CLOSES)
        if first in _DECLARES:
            for name, value in _declared(simple.words[1:]):
                if value is not None:
                    given[name] = None if depth > 0 else value
                if first == "export" or given.get(name) is not None:
                    exported[name] = None
        elif (arguments := _arguments(simple.words)) is not None:
            given["@"] = _perhaps("@", arguments, given.get("@"), simple.line) if depth > 0 else arguments
            reader.rests["@"] = (*reader.rests.get("@", ()), *simple.defaults)
        elif not simple.words:
            given |= {
                name: _perhaps(name, value, given.get(name), simple.line) if depth > 0 else value
                for name, value in assigned.items()
            }
        if simple.words or simple.broken is not None:
            budget.spend(len(exported))
            here = {name: _text(given.get(name)) for name in exported}
            simple.environment = here | {name: _text(value) for name, value in assigned.items()}
            yield simple


def _positional(arguments: Sequence[Word]) -> Variables:
    """$@ and $1."""
    return {"@": tuple(arguments)} | {str(place): word.text for place, word in enumerate(arguments[:9], 1)}


def _led(simple: Simple, assigned: Variables) -> int:
    """Take off what leads the command: a prompt, `then`, assignments behind it. How many blocks are opened there."""
    words, at, opened = simple.words, 0, 0
    while at < len(words) and not words[at].is_split and (
        words[at].text in _SKIPPED or _PROMPT.fullmatch(words[at].text)
    ):  # fmt: skip
        opened += words[at].text in _OPENS
        at += 1
    while at < len(words) and (match := _ASSIGNMENT.fullmatch(words[at].text)):
        assigned[match[1]] = None if is_marked(match[3]) or match[2] else match[3]
        simple.assignments[match[1]] = words[at]
        at += 1
    del words[:at]
    return opened


def _declared(words: Sequence[Word]) -> Iterator[tuple[str, str | None]]:
    """The variables that export, declare and the like name; with the value where one is given."""
    for word in words:
        match = _ASSIGNMENT.fullmatch(word.text)
        yield (match[1], match[3]) if match else (word.text, None)


def _arguments(words: Sequence[Word]) -> tuple[Word, ...] | None:
    """What `set -- …` makes the script's own arguments; None for any other command."""
    if not words or words[0].text != "set":
        return None
    at = next((place for place, word in enumerate(words[1:], 1) if word.text == "--"), None)
    return None if at is None else tuple(words[at + 1 :])


def _perhaps(
    name: str, value: str | tuple[Word, ...] | None, before: str | tuple[Word, ...] | None, line: int
) -> tuple[Word, ...] | None:
    """What a variable is after a branch that may not be taken: of an array that is only added to, the items before."""
    whole = "$@" if name == "@" else f"${{{name}[@]}}"
    if not (isinstance(value, tuple) and isinstance(before, tuple)):
        return None
    is_longer = [word.text for word in value[: len(before)]] == [word.text for word in before]
    return (*before, Word(mark(whole), line)) if is_longer else None


def words(text: str, line: int = 1) -> tuple[list[Word], Broken | None]:
    """A text parted at its blanks with quotes and backslashes, and no more: as compose parts a command."""
    reader = _Reader(text, line, {}, is_plain=True)
    found = reader.command()
    return (found[0].words, found[0].broken) if found else ([], None)


def _text(value: str | tuple[Word, ...] | None) -> str | None:
    return value if isinstance(value, str) else None


class _Reader:
    def __init__(
        self,
        text: str,
        line: int,
        variables: Variables,
        is_plain: bool = False,
        at: int = 0,
        is_array: bool = False,
        depth: int = 0,
    ) -> None:
        self._all, self._at, self._line = text, at, line
        self._variables, self._plain, self._is_array, self._depth = variables, is_plain, is_array, depth
        self.rests: dict[str, tuple[str, ...]] = {}
        """Of a variable, those on whose defaults its value rests."""
        self._fallen_back: list[str] = []
        self._cut = (-1, 0)
        self._word_at = at
        self._heredocs: list[tuple[str, bool]] = []

    # ---- one command

    def command(self) -> tuple[Simple, Variables] | None:
        """The next command, and what is assigned before its first word; None at the end."""
        self._simple: Simple = Simple(self._line)
        self._assigned: Variables = {}
        self._fallen_back = []
        self._begin_word()
        self._after_continuation = False
        self._skips_next = False
        while True:
            budget.spend()
            char = self._peek()
            if self._at == self._cut[0]:
                self._at = self._cut[1]
            elif char == "":
                self._end_word()
                self._simple.last_line = self._line
                return self._done("\n") if self._simple.words or self._assigned or self._simple.broken else None
            elif char in _BLANKS:
                self._end_word()
                self._taken(_BLANK_RUN)
            elif self._plain and char in "\n\r":
                self._end_word()
                self._next()
            elif self._plain:
                self._piece(char)
            elif char == "(" and (self._array() or self._remark()):
                pass
            elif self._ends_with(char):
                return self._done(char)

    def _ends_with(self, char: str) -> bool:
        """Take what comes next as a shell does; whether a command ends with it."""
        if char == "#" and not self._in_word:
            self._comment()
        elif char in _ENDS and not self._all.startswith("&>", self._at):
            return self._operator(char) or (self._is_array and char == ")")
        elif char == "{" and not self._in_word and (tag := _CONTROL.match(self._all, self._at)):
            self._control(tag)
        elif char == "<" and (name := _PLACEHOLDER.match(self._all, self._at)):
            self._word_at = self._word_at if self._in_word else self._at
            self._at = name.end()
            self._unknown(name[0], is_quoted=True)
        elif char in "<>&":
            self._redirection(char)
        else:
            self._piece(char)
        return False

    def _done(self, ended: str) -> tuple[Simple, Variables]:
        self._simple.ended = ended
        self._simple.defaults = tuple(dict.fromkeys(self._fallen_back))
        return self._simple, self._assigned

    def _operator(self, char: str) -> bool:
        """Take an operator; whether it ends a command that holds something."""
        self._end_word()
        self._simple.last_line = self._line
        empty_line = char == "\n" and self._after_continuation
        self._next()
        if char == "\n":
            self._skip_heredocs()
        elif self._peek() == char:
            self._next()
        something = bool(self._simple.words or self._assigned or self._simple.broken)
        if something and empty_line and self._simple.broken is None:
            self._simple.broken = Broken(Flaw.MISSING_BACKSLASH, self._line - 1)
        if not something:
            self._simple.line = self._line
        return something

    def _comment(self) -> None:
        end = self._all.find("\n", self._at)
        end = len(self._all) if end < 0 else end
        text = self._all[self._at : end]
        if self._simple.words and (self._after_continuation or text.rstrip().endswith("\\")):
            self._simple.broken = self._simple.broken or Broken(Flaw.COMMENT_IN_COMMAND, self._line)
        self._after_continuation = False
        self._at = end

    def _control(self, tag: re.Match[str]) -> None:
        """A tag of Jinja's: within a command, what stands up to its end is there or not."""
        begin = self._at
        self._at = tag.end()
        if not self._simple.words:
            return
        end = self._end_of_block(tag)
        self._line += self._all.count("\n", self._at, end)
        self._word_at, self._at = begin, end
        self._unknown("{%…%}", is_quoted=False)
        self._end_word()
        line_end = _LINE_END.match(self._all, end)
        if line_end and not self._all[self._all.rfind("\n", 0, begin) + 1 : begin].strip():
            self._at = line_end.end()  # lines of its own
            self._line += 1
            self._after_continuation = True

    def _end_of_block(self, tag: re.Match[str]) -> int:
        """Where what the tag opens ends; the end of the tag, where it opens nothing."""
        depth = 0
        block = _BLOCKS.get(tag["word"])
        for match in block.finditer(self._all, tag.start(), tag.start() + _MOST_OF_A_BLOCK) if block else ():
            depth += -1 if match[1] else 1
            if depth == 0:
                return match.end()
        return tag.end()

    def _redirection(self, char: str) -> None:
        number = "".join(self._chars)
        if self._in_word and number.isdigit() and not self._quoted:
            self._begin_word()
        self._end_word()
        self._next()
        start = self._at
        while self._peek() in ("<", ">", "&", "|", "-") and self._at - start < 2:
            self._next()
        if char == "<" and self._all[start - 1 : self._at] in ("<<", "<<-"):
            match = re.compile(r"[ \t]*(?P<quote>['\"]?)(?P<word>[\w.-]+)(?P=quote)").match(self._all, self._at)
            if match:
                self._heredocs.append((match["word"], self._all[self._at - 1] == "-"))
                self._at = match.end()
            return
        self._skips_next = True

    def _skip_heredocs(self) -> None:
        for word, is_indented in self._heredocs:
            while self._at < len(self._all):
                end = self._all.find("\n", self._at)
                end = len(self._all) if end < 0 else end
                content = self._all[self._at : end]
                self._at = min(end + 1, len(self._all))
                self._line += 1
                if (content.lstrip("\t") if is_indented else content) == word:
                    break
        self._heredocs.clear()

    # ---- one word

    def _begin_word(self) -> None:
        self._fallen_back_before = len(self._fallen_back)
        self._chars: list[str] = []
        self._in_word = self._quoted = self._is_split = False
        self._word_line = self._line
        self._span: tuple[int, int] | None = None
        self._is_nothing = False  # an array without items is no word, not even an empty one

    def _end_word(self) -> None:
        if self._in_word:
            text = "".join(self._chars)
            assignment = None if self._simple.words or self._plain or self._is_array else _ASSIGNMENT.fullmatch(text)
            if self._is_nothing and not text:
                pass
            elif self._skips_next:
                self._skips_next = False
            elif assignment:
                self._assign(assignment[1], assignment[2], assignment[3])
                self._simple.assignments[assignment[1]] = self._word(text)
            else:
                self._simple.words.append(self._word(text))
            self._after_continuation = False
        self._begin_word()

    def _word(self, text: str) -> Word:
        start, end = self._span or (self._word_at, self._at)
        if self._span is not None and len(self._chars) > 1:  # an array's item is a part of the word only
            start, end = -1, self._at
        return Word(text, self._word_line, self._is_split and not self._quoted, start, end)

    def _assign(self, name: str, adds: str, value: str) -> None:
        self.rests[name] = tuple(self._fallen_back[self._fallen_back_before :])
        before = self._assigned.get(name, self._variables.get(name, ""))
        if not adds:
            self._assigned[name] = None if is_marked(value) else value
        else:
            if isinstance(before, str):
                budget.spend_on(before)
            self._assigned[name] = before + value if isinstance(before, str) and not is_marked(value) else None

    def _remark(self) -> bool:
        """Take `(cut)`, `(recipe of May)` within a command: no shell takes it there, people write it."""
        match = _REMARK.match(self._all, self._at)
        if match is None or self._in_word or not self._simple.words:
            return False
        self._at = match.end()
        return True

    def _array(self) -> bool:
        """`NAME=(…)` at the start of a command: take it."""
        text = "".join(self._chars)
        match = _ASSIGNMENT.fullmatch(text) if self._in_word and not self._simple.words else None
        if match is None or match[3] or self._is_array:
            return False
        self._next()
        inner = _Reader(self._all, self._line, self._variables, at=self._at, is_array=True)
        items: list[Word] = []
        closed = False
        while not closed and (found := inner.command()) is not None:  # lines and comments may stand between
            items += found[0].words
            closed = found[0].ended == ")"
            self._fallen_back += found[0].defaults
        self._at, self._line = inner._at, inner._line
        self.rests[match[1]] = tuple(self._fallen_back[self._fallen_back_before :])
        before = self._variables.get(match[1]) if match[2] else ()
        budget.spend(len(before or ()))
        self._assigned[match[1]] = (*before, *items) if isinstance(before, tuple) else None
        self._begin_word()
        return True

    def _piece(self, char: str) -> None:
        if not self._in_word:
            self._word_line, self._word_at = self._line, self._at
        self._next()
        match char:
            case "\\":
                self._backslash()
            case "'":
                self._single()
            case '"':
                self._double()
            case "$" | "`" if not self._plain:
                self._expansion(char, is_quoted=False)
            case "{":
                self._brace(is_quoted=False)
            case _:
                self._add(char + self._taken(_LETTERS))

    def _brace(self, is_quoted: bool) -> None:
        template = _TEMPLATE.match(self._all, self._at - 1)
        if template is None:
            self._add("{")
            return
        self._at = template.end()
        self._unknown(template_name(template[0]), is_quoted)

    def _add(self, text: str) -> None:
        self._in_word = True
        self._chars.append(text)

    def _backslash(self) -> None:
        if self._peek() == "\n":
            self._next()
            if not self._in_word:
                self._after_continuation = True
            return
        blanks = _BROKEN.match(self._all, self._at)
        if blanks and not self._plain and (not self._in_word or self._all[blanks.end() : blanks.end() + 1] != "#"):
            is_comment = self._all[blanks.end() : blanks.end() + 1] == "#"
            self._break(Flaw.COMMENT_AFTER_BACKSLASH if is_comment else Flaw.SPACE_AFTER_BACKSLASH, blanks.end())
        elif self._peek() == "#" and not self._in_word and not self._plain:
            self._break(Flaw.COMMENT_AFTER_BACKSLASH, self._at + 1)  # the sign itself is a word now
        if self._peek():
            self._add(self._next())

    def _break(self, kind: Flaw, comment: int) -> None:
        self._simple.broken = self._simple.broken or Broken(kind, self._line)
        end = self._all.find("\n", comment)
        end = len(self._all) if end < 0 else end
        if _SIGNS.search(self._all, comment, end):
            # The words of the comment are arguments now; an apostrophe among them would hide what follows.
            self._cut = (comment, end)

    def _single(self) -> None:
        end = self._all.find("'", self._at)
        if end < 0:
            self._unbalanced()
            return
        self._add(_TEMPLATE.sub(lambda match: mark(template_name(match[0])), self._all[self._at : end]))
        self._quoted = True
        self._line += self._all.count("\n", self._at, end)
        self._at = end + 1

    def _ansi(self) -> None:
        start = self._at
        self._next()
        while (char := self._peek()) not in ("", "'"):
            self._next()
            if char == "\\":
                escaped = self._next()
                char = _ANSI.get(escaped, "\\" + escaped)
            self._add(char + self._taken(_ANSI_LETTERS))
        if not self._peek():
            self._at = start
            self._unbalanced()
            return
        self._next()
        self._in_word = self._quoted = True

    def _double(self) -> None:
        start, line = self._at, self._line
        self._in_word = self._quoted = True
        while True:
            char = self._next()
            if char == '"':
                return
            if char == "":
                self._at, self._line = start, line
                self._unbalanced()
                return
            if char == "\\" and self._peek() in ("$", "`", '"', "\\", "\n"):
                escaped = self._next()
                self._add("" if escaped == "\n" else escaped)
            elif char in "$`" and not self._plain:
                self._expansion(char, is_quoted=True)
            elif char == "{":
                self._brace(is_quoted=True)
            else:
                self._add(char + self._taken(_QUOTED_LETTERS))

    def _unbalanced(self) -> None:
        """The shell waits for the end of the quote: what stands before it is all that can be read."""
        self._simple.broken = Broken(Flaw.UNBALANCED_QUOTE, self._word_line)
        self._simple.rest = self._all[self._at :]
        self._begin_word()
        self._at = len(self._all)

    # ---- what begins with a dollar

    def _expansion(self, char: str, is_quoted: bool) -> None:
        following = self._peek()
        if char == "`":
            self._substitution("`", is_quoted)
        elif following == "(":
            self._substitution(")", is_quoted)
        elif following == "{":
            self._braces(is_quoted)
        elif following == "'" and not is_quoted:
            self._ansi()
        elif following == '"' and not is_quoted:
            pass  # $"…" is "…"
        elif name := _NAME.match(self._all, self._at):
            self._at = name.end()
            self._value(name[0], f"${name[0]}", is_quoted)
        elif following and following in "@*" and "@" in self._variables:
            self._next()
            self._value("@", f"${following}", is_quoted)
        elif following and following in "@*#?$!-0123456789":
            self._next()
            self._value("@" if following == "*" else following, f"${following}", is_quoted)
        else:
            self._add("$")

    def _substitution(self, closing: str, is_quoted: bool) -> None:
        depth = 0
        while char := self._next():
            if closing == ")":
                depth += (char == "(") - (char == ")")
                if depth == 0:
                    break
            elif char == "`":
                break
        self._unknown("$(…)", is_quoted)  # what is run there may name a secret

    def _braces(self, is_quoted: bool) -> None:
        start, depth = self._at, 0
        while char := self._next():
            depth += (char == "{") - (char == "}")
            if depth == 0:
                break
        inner = self._all[start + 1 : self._at - 1]
        name = _NAME.match(inner) or _ARGUMENT.match(inner)
        rest = inner[name.end() :] if name else inner
        if name is None:
            self._unknown("${…}", is_quoted)
        elif name[0] in "@*":
            self._value("@", f"${name[0]}", is_quoted) if not rest else self._unknown(f"${name[0]}", is_quoted)
        elif rest in ("[@]", "[*]"):
            self._value(name[0], f"${{{name[0]}{rest}}}", is_quoted)
        elif not rest or (rest[:2] in (":-", ":=", ":?") and self._variables.get(name[0])):
            self._value(name[0], f"${{{name[0]}}}", is_quoted)
        elif operator := _OPERATOR.fullmatch(rest):
            self._fallback(name[0], operator[1], operator[2], is_quoted)
        else:
            self._unknown(f"${{{name[0]}}}", is_quoted)

    def _fallback(self, name: str, operator: str, text: str, is_quoted: bool) -> None:
        """`${NAME:-text}`: what holds where the variable is not set, if the text sets it nowhere."""
        fallback = None
        if operator in "-=" and self._variables.get(name, "") == "" and not is_secret(name):
            fallback = self._evaluated(text)
        if fallback is None:
            self._unknown(f"${{{name}}}", is_quoted)
            return
        self._fallen_back.append(name)
        if operator == "=":
            self._variables[name] = fallback
            self.rests[name] = (name,)
        self._put(fallback, is_quoted)

    def _evaluated(self, text: str) -> str | None:
        """What a variable falls back to; None where that is not in the text, or may be a secret."""
        quote = text[:1] if text[:1] in ("'", '"') and text[-1:] == text[:1] and len(text) > 1 else ""
        bare = text[1:-1] if quote else text
        if _DEFAULT.fullmatch(bare):
            return bare
        if self._depth == _MOST_NESTED or not bare.startswith("$") or len(bare) > _MOST_OF_A_BLOCK:
            return None
        inner = _Reader(text, self._line, self._variables, depth=self._depth + 1)
        inner.rests = self.rests
        found = inner.command()
        if found is None or len(found[0].words) != 1 or found[0].broken or is_marked(found[0].words[0].text):
            return None
        self._fallen_back += found[0].defaults
        return found[0].words[0].text

    def _value(self, name: str, written: str, is_quoted: bool) -> None:
        value = None if is_secret(name) else self._variables.get(name)
        if value is None:
            self._unknown(written, is_quoted)
            return
        self._fallen_back += self.rests.get(name, ())
        self._put(value, is_quoted)

    def _put(self, value: str | tuple[Word, ...], is_quoted: bool) -> None:
        self._in_word = self._in_word or is_quoted
        if isinstance(value, tuple):
            self._is_nothing = not value
            parts = list(value)
        else:
            texts = [value] if is_quoted else value.split()
            parts = [Word(text, self._line, end=self._at) for text in texts]
        budget.spend(len(parts))
        for place, part in enumerate(parts):
            budget.spend_on(part.text)
            if place:
                self._end_word()
            self._in_word = True
            self._span = (part.start, part.end) if isinstance(value, tuple) or len(parts) > 1 else self._span
            self._chars.append(part.text)
            self._quoted |= is_quoted

    def _unknown(self, written: str, is_quoted: bool) -> None:
        self._add(mark(written))
        self._is_split = self._is_split or not is_quoted

    # ---- the text

    def _peek(self) -> str:
        return self._all[self._at : self._at + 1]

    def _taken(self, letters: re.Pattern[str]) -> str:
        """The letters that come next; none where others do."""
        found = letters.match(self._all, self._at)
        if found is None:
            return ""
        self._at = found.end()
        self._line += found[0].count("\n")
        return found[0]

    def _next(self) -> str:
        char = self._peek()
        self._at += len(char)
        self._line += char == "\n"
        return char


def lost_after(following: Iterable[Simple], ended: Simple) -> tuple[Broken | None, list[Word]]:
    """What the author meant to belong to a command that had ended: why it ended, and the words of the lines after it.

    These lines begin with a flag, or follow one that a backslash should have joined.
    """
    lost: list[Word] = []
    last, why = ended, ended.broken
    for simple in following:
        if last.ended != "\n":
            break
        is_joined = last.broken is not None and last.broken.kind in _BACKSLASH and simple.line <= last.last_line + 1
        if not (is_joined or (simple.words and simple.words[0].text.startswith("-"))):
            break
        budget.spend(len(simple.words))
        lost += simple.words
        why = why or Broken(Flaw.MISSING_BACKSLASH, ended.last_line)
        last = simple
    return why, lost


_BACKSLASH = (Flaw.COMMENT_AFTER_BACKSLASH, Flaw.SPACE_AFTER_BACKSLASH)

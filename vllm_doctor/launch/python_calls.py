"""What a text in Python starts: `LLM(…)`, `AsyncEngineArgs(…)`, Ray's `LLMConfig(…)`, and `vllm serve` as a process.

The text is only parsed (ast), and followed by python_flow. Of a text that is no whole program, as people paste one,
the lines that Python takes are followed, or at least the calls that stand in it.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from vllm_doctor.launch import budget, unwrap
from vllm_doctor.launch.python_flow import Flow
from vllm_doctor.launch.python_state import Engine, Process
from vllm_doctor.launch.python_values import Default, Listed, Mapped, Maybe, Open, Value, defaults_in, known, text
from vllm_doctor.launch.start import Form, Holder, Launch, Resources, Word, Written, version_of
from vllm_doctor.launch.unexpanded import is_marked, mark

Line = tuple[str, int]
_MOST_CHARS = 160_000
"""What is parsed together, as each character may take 1 KB then. Of a longer text the calls are read by themselves."""
_MOST_TRIES = 24
_MOST_MENDED = 400_000
"""Characters, of all tries together."""
_MOST_CALLS = 32
_MOST_DEFAULTS = 8
_LONGEST_CALL = 20_000
_DEEPEST = 100
_CALL = re.compile(r"(?<![\w.])(?:[A-Za-z_]\w{0,40}\.){0,3}(?P<name>LLM|AsyncEngineArgs|EngineArgs|LLMConfig)\(")
_IMPORT = re.compile(r"^[ \t]{0,40}(?:>>> )?(?:from[ \t]+[\w.]{1,200}[ \t]+import[ \t(]|import[ \t]+\w)", re.MULTILINE)
_UNQUOTED = re.compile(r"([a-z_]{1,60})[ ]?=[ ]?([A-Za-z0-9][\w./-]{0,200})")
_ABOUT = re.compile(r"vllm|LLM\(")
_PROMPT = re.compile(r"^[ \t]{0,40}(?:>>>|In \[\d{1,4}\]:)(?: |$)", re.MULTILINE)
_PROMPTED = re.compile(r"[ \t]{0,40}(?:>>>|\.\.\.|In \[\d{1,4}\]:|\.\.\.:)(?: |$)(.*)")
_MAGIC = re.compile(r"([ \t]{0,80})(?:([\w, ]{1,60})= ?)?([!%]{1,2})(.*)")
_ENV = re.compile(r"(?:env|set_env)[ \t]+([A-Za-z_]\w*)(?:=|[ \t]+)(\S.*)")
_PIN = re.compile(r"(?<![\w/.-])vllm(?:\[[\w,. -]{1,40}\])? {0,2}={2,3} {0,2}v?(\d{1,3}\.\d{1,4}\.[\w.]{1,30})")
_IMAGE = re.compile(r"(?<![\w./-])[\w./-]{0,80}vllm[\w./-]{0,60}:[\w.-]{1,60}")
_BY_USAGE = ("--max-num-seqs", "--max-num-batched-tokens")
_NO_FLAGS = frozenset({"usage_context", "stat_loggers", "start_engine_loop"})
"""Of Python only."""
_SERVER = re.compile(r"vllm|api_server")


@dataclass(frozen=True)
class Call(Holder):
    """A call whose keywords are the settings, in its text."""

    text: str = field(repr=False)
    node: ast.Call = field(repr=False, compare=False)
    line: int


@dataclass(frozen=True)
class Cell:
    """A piece of one program, and how its lines are called: "", or "cell 3, "."""

    text: str
    place: str = ""


def is_python(text: str, name: str = "") -> bool:
    """Whether the text is a program, or a part of one, that has to do with vLLM. Pure."""
    if name.endswith((".py", ".pyw")):
        return True
    if not _ABOUT.search(text) or not (_IMPORT.search(text) or _CALL.search(text)):
        return False
    return _parsed(_prepared(text)) is not None


def starts(text: str, line: int = 1) -> list[Written]:
    """The starts in a text in Python; it begins in this line."""
    return of_cells([Cell("\n" * (line - 1) + text)])


def of_cells(cells: Sequence[Cell]) -> list[Written]:
    """The starts in the cells of a notebook, which share their names; in their order."""
    whole = "\n".join(cell.text for cell in cells)
    trees = []
    left = _MOST_CHARS
    for cell in cells:
        prepared = _prepared(cell.text)
        left -= len(prepared)
        trees.append(((_parsed(prepared) or _mended(prepared)) if left >= 0 else None, cell, prepared))
    flow = Flow(is_fragment=not _IMPORT.search(whole))
    is_followed = _followed(flow, [(tree, cell.place) for tree, cell, _ in trees if tree is not None])
    texts = {cell.place: prepared for _, cell, prepared in trees}
    found = list(_of_flow(flow, texts))
    if not found:
        found = [one for tree, cell, _ in trees if tree is None for one in in_text(cell.text, cell.place)]
    pinned = version(whole)
    notes = () if is_followed else ("the program is longer than is followed: what stands behind is not read",)
    return [replace(one, version=one.version or pinned, notes=(*one.notes, *notes)) for one in found]


def _followed(flow: Flow, trees: Sequence[tuple[ast.Module, str]]) -> bool:
    """Whether all of the trees could be followed; what was found before the steps were used up counts."""
    try:
        with budget.limited():
            for tree, place in trees:
                flow.follow(tree, place)
            flow.finish()
    except budget.ExhaustedError:
        return False
    return True


def in_text(text: str, place: str = "") -> list[Written]:
    """The starts in the calls that stand in a text of any kind, each by itself."""
    found: list[Written] = []
    for count, match in enumerate(_CALL.finditer(text)):
        if count >= _MOST_CALLS:
            break
        call, is_whole = _call_in(match["name"], text[match.end() : match.end() + _LONGEST_CALL])
        if call is None:
            continue
        line = text.count("\n", 0, match.start())
        for node in ast.walk(call):
            if isinstance(node, ast.expr):
                node.lineno += line
        flow = Flow(is_fragment=True)
        flow.follow(ast.Module([ast.Expr(call)], []), place)
        notes = () if is_whole else ("the call is cut off in the text, or not all of it is Python: more may be given",)
        for one in _of_flow(flow, {}):
            found.append(replace(one, is_open=one.is_open or not is_whole, notes=(*one.notes, *notes)))
    pinned = version(text)
    return [replace(one, version=one.version or pinned) for one in found]


def version(text: str) -> str | None:
    """The one version of vLLM that a text names: where it is installed, by an image, or in a comment."""
    pins: dict[bool, dict[str, None]] = {False: {}, True: {}}
    for match in _PIN.finditer(text):
        begin = text.rfind("\n", 0, match.start()) + 1
        pins["#" in text[begin : match.start()]][match[1].rstrip(".")] = None
    if not pins[False]:
        images = {found for match in _IMAGE.finditer(text) if (found := version_of(match[0])) is not None}
        pins[False] = dict.fromkeys(images)
    told = pins[False] or pins[True]
    return next(iter(told)) if len(told) == 1 else None


# ---- the text as Python's parser takes it


def _prepared(text: str) -> str:
    """Without prompts and IPython's own lines, each line in its place."""
    if _PROMPT.search(text):
        kept = [match[1] if (match := _PROMPTED.match(line)) else "" for line in text.split("\n")]
        text = "\n".join(kept)
    if "\n%" in text or "\n!" in text or text.lstrip()[:1] in ("%", "!") or re.search(r"^[ \t]+[!%]", text, re.M):
        text = "\n".join(_without_magics(text.split("\n")))
    return text if text[:1] not in (" ", "\t", "\n") else textwrap.dedent(text)


def _without_magics(lines: list[str]) -> Iterator[str]:
    """`!vllm serve m` as a call that runs it, `%env X=1` as an assignment."""
    at = 0
    while at < len(lines):
        line = lines[at]
        match = _MAGIC.fullmatch(line)
        at += 1
        if match is None:
            yield line
            continue
        indent, _, sign, rest = match[1], match[2], match[3], match[4].strip()
        skipped = 0
        if sign == "%%":
            if rest.split(" ")[0] in ("bash", "sh", "script", "cmd"):
                script = "\n".join(lines[at:])
                yield f"get_ipython().system({script!r})"
                return
            if rest.split(" ")[0] in ("writefile", "html", "javascript", "markdown", "latex", "sql"):
                return
            yield ""
            continue
        while rest.endswith("\\") and at < len(lines):
            rest = f"{rest[:-1]} {lines[at].strip()}"
            at += 1
            skipped += 1
        if sign.startswith("!"):
            yield f"{indent}get_ipython().system({rest!r})"
        elif env := _ENV.fullmatch(rest):
            yield f"{indent}get_ipython().env({{{env[1]!r}: {env[2]!r}}})"
        elif rest.startswith(("time ", "timeit ")):
            yield indent + rest.partition(" ")[2]
        else:
            yield f"{indent}pass"
        yield from [""] * skipped


def _parsed(text: str) -> ast.Module | None:
    if len(text) > _MOST_CHARS:
        return None
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _mended(text: str) -> ast.Module | None:
    """What is left where lines that are no Python are taken out."""
    if len(text) > _MOST_CHARS:
        return None
    lines = text.split("\n")
    left = _MOST_MENDED
    for _ in range(_MOST_TRIES):
        left -= len(text)
        if left < 0:
            return None
        try:
            return ast.parse("\n".join(lines))
        except SyntaxError as error:
            at = (error.lineno or 0) - 1
            if not 0 <= at < len(lines) or lines[at].strip() in ("", "pass"):
                return None
            lines[at] = " " * (len(lines[at]) - len(lines[at].lstrip())) + "pass"
        except (ValueError, RecursionError, MemoryError):
            return None
    return None


def _call_in(name: str, body: str) -> tuple[ast.Call | None, bool]:
    """The call of which this follows the bracket, as far as it can be read; whether that is all of it."""
    items, is_closed = _items(body)
    args: list[ast.expr] = []
    keywords: list[ast.keyword] = []
    is_whole = is_closed
    for item, line in items:
        try:
            one = ast.parse("f(" + _quoted(item.strip()) + ")", mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            is_whole = False
            continue
        if isinstance(one, ast.Call):
            for node in ast.walk(one):
                if isinstance(node, ast.expr):
                    node.lineno += line
            args += one.args
            keywords += one.keywords
    if not (args or keywords):
        return None, False
    func = ast.Name(name, ast.Load(), lineno=1, col_offset=0)
    return ast.Call(func, args, keywords, lineno=1, col_offset=0), is_whole


def _quoted(item: str) -> str:
    """The keyword with the quotes that people leave out where they tell of a call: `model=Qwen2-7B` is no Python, and
    `dtype=bfloat16` is what the flag takes, not a variable."""
    match = _UNQUOTED.fullmatch(item)
    if match is None:
        return item
    name, value = match.groups()
    return f'{name}="{value}"' if _is_no_expression(value) or _is_choice(name, value) else item


def _is_no_expression(value: str) -> bool:
    try:
        ast.parse(value, mode="eval")
    except SyntaxError:
        return True
    return False


def _is_choice(name: str, value: str) -> bool:
    from vllm_doctor.vllm import flags  # late: the names of all releases

    return bool(flags.value_spans(f"--{name.replace('_', '-')}", value))


def _items(body: str) -> tuple[list[Line], bool]:
    """What stands between the commas of a bracket, each with the lines above it; whether the bracket is closed."""
    found: list[Line] = []
    begin = depth = at = line = 0
    begin_line = 0
    quote = ""
    while at < len(body):
        char = body[at]
        line += char == "\n"
        if quote:
            if char == "\\":
                at += 1
            elif body.startswith(quote, at):
                at += len(quote) - 1
                quote = ""
        elif char in "'\"":
            quote = char * 3 if body.startswith(char * 3, at) else char
            at += len(quote) - 1
        elif char == "#":
            end = body.find("\n", at)
            body = body[:at] + (" " * ((end if end >= 0 else len(body)) - at)) + (body[end:] if end >= 0 else "")
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            if depth == 0:
                found.append((body[begin:at], begin_line))
                return [one for one in found if one[0].strip()], True
            depth -= 1
        elif char == "," and depth == 0:
            found.append((body[begin:at], begin_line))
            begin, begin_line = at + 1, line
        if depth > _DEEPEST:
            break
        at += 1
    return [one for one in found if one[0].strip()], False


# ---- what was found, as starts


def _of_flow(flow: Flow, texts: Mapping[str, str]) -> Iterator[Written]:
    found: list[tuple[int, Written]] = []
    for engine in flow.state.engines:
        if not engine.is_part:
            found.append((engine.node.lineno, _of_engine(engine, flow, texts.get(engine.place))))
    for listed, resources in flow.state.lists:
        found += [(listed.line, one) for one in _of_list(listed, resources, flow)]
    for process in flow.state.processes:
        found += [(process.line, one) for one in _of_process(process, flow)]
    order = list(texts)
    seen: set[tuple[str, ...]] = set()
    places = {id(one): (order.index(p) if (p := one.place.rpartition("line ")[0]) in texts else 0, line)
              for line, one in found}  # fmt: skip
    for _, one in sorted(found, key=lambda pair: places[id(pair[1])]):
        key = (*(word.text for word in one.words), "", one.resources.gpu or "", str(sorted(one.environment.items())))
        if key not in seen:
            seen.add(key)
            by_default = _of_defaults({"the GPU": flow.state.gpu_defaults}) if one.resources.gpu else ()
            yield replace(one, notes=(*one.notes, *by_default))


def _of_engine(engine: Engine, flow: Flow, text_of_cell: str | None) -> Written:
    arguments, line = engine.arguments, engine.node.lineno
    given = dict(arguments.fields)
    words = [Word("vllm", line), Word("serve", line)]
    model = given.pop("model", None)
    if known(model) != (True, None):
        words.append(Word(text(model), line))
    told = {"the model": list(defaults_in(model))}
    for name, value in given.items():
        if name in _NO_FLAGS or (engine.of_command_line and not _is_engine_argument(name)):
            continue
        flag = f"--{name.replace('_', '-')}"
        at = getattr(arguments.nodes.get(name), "lineno", line)
        words += _flag(flag, value, at)
        told[flag] = list(defaults_in(value))
    offline = ", which runs offline and answers no HTTP requests" if engine.name == "LLM" else ""
    notes = [f"{engine.name}(…) in Python{offline}: its keywords are read as the flags of these names"]
    if unset := [flag for flag in _BY_USAGE if flag not in told]:
        notes.append(f"an engine in Python takes other defaults than a server: not known of {' and '.join(unset)}")
    if arguments.is_open:
        notes.append("more keywords may be given than stand in the text")
    holder = None if text_of_cell is None else Call(text_of_cell, engine.node, line)
    return Written(
        words,
        Form.PYTHON,
        _environment(flow.state.environment, None),
        resources=engine.resources,
        notes=(*notes, *_of_defaults(told)),
        place=f"{engine.place}line {line}",
        is_open=arguments.is_open,
        holder=holder,
        of_keywords=True,
    )


def _is_engine_argument(name: str) -> bool:
    from vllm_doctor.vllm import flags  # late: the names of all releases

    return flags.is_flag(f"--{name.replace('_', '-')}")


def _flag(flag: str, value: Value, line: int) -> Iterator[Word]:
    """The words that set a flag to the value of a keyword."""
    is_known, scalar = known(value)
    if is_known and scalar is None:
        return
    if is_known and isinstance(scalar, bool):
        yield Word(flag if scalar else flag.replace("--", "--no-", 1), line)
    elif isinstance(value, Listed) and all(_is_plain(item) for item in value.items):
        if value.items:
            yield from (Word(flag, line), *(Word(text(item), line) for item in value.items))
    elif is_marked(told := text(value)) or told.startswith("-"):
        yield Word(f"{flag}={told}", line)
    else:
        yield from (Word(flag, line), Word(told, line))


def _is_plain(value: Value) -> bool:
    is_known, scalar = known(value)
    return is_known and scalar is not None and not str(scalar).startswith("-")


def _of_list(listed: Listed, resources: Resources, flow: Flow) -> Iterator[Written]:
    if listed.is_part or not any(isinstance(one, str) and _SERVER.search(one) for one in listed.items[:40]):
        return
    budget.spend(len(listed.items))
    words, told = _words(listed)
    environment = _environment(flow.state.environment, listed.environment)
    for launch in unwrap.of_words(words, Form.PYTHON, environment):
        yield _of_process_in(launch, f"{listed.place}line {listed.line}", resources, _of_defaults(told))


def _words(listed: Listed) -> tuple[list[Word], dict[str, list[str]]]:
    """The items of a list as words, and what of them is only a default, by flag."""
    words: list[Word] = []
    told: dict[str, list[str]] = {}
    flag, is_perhaps = "the model", False
    for item in listed.items:
        if isinstance(item, Maybe):
            inner = text(item.item)
            if inner.startswith("--"):
                words.append(Word(inner.partition("=")[0] + "=" + mark("…"), listed.line))
                is_perhaps = True
            elif not is_perhaps:
                words.append(Word(mark("…"), listed.line, True))
            continue
        is_perhaps = False
        if isinstance(item, Open):
            words.append(Word(mark(item.written), listed.line, item.written == "…"))
            continue
        word = text(item)
        words.append(Word(word, listed.line))
        if word.startswith("--"):
            flag = word.partition("=")[0]
        if isinstance(item, Default):
            told.setdefault(flag, []).append(item.of)
    return words, told


def _of_process(process: Process, flow: Flow) -> Iterator[Written]:
    if not _SERVER.search(process.text):
        return
    for written in unwrap.of_script(process.text, process.line):
        launch = replace(written, environment={**_environment(flow.state.environment, process.environment),
                                               **written.environment})  # fmt: skip
        yield _of_process_in(launch, f"{process.place}line {process.line}", process.resources, ())


def _of_process_in(launch: Launch, place: str, resources: Resources, notes: Iterable[str]) -> Written:
    asked = launch.resources
    return Written.of(
        launch,
        form=Form.PYTHON,
        place=place,
        holder=None,
        resources=replace(asked, gpus=asked.gpus or resources.gpus, gpu=asked.gpu or resources.gpu),
        notes=(*launch.notes, *notes),
    )


def _environment(shared: Mapped, own: Mapped | None) -> dict[str, str | None]:
    """The variables that the text sets; those that it does not set come from where it runs."""
    given = {**shared.fields, **(own.fields if own is not None else {})}
    return {name: text(value) for name, value in given.items()}


def _of_defaults(told: Mapping[str, Sequence[str]]) -> tuple[str, ...]:
    """One sentence on what counts only where nothing else is given."""
    named = [f"{what} ({', '.join(dict.fromkeys(of))})" for what, of in told.items() if of]
    if not named:
        return ()
    more = f" and {len(named) - _MOST_DEFAULTS} more" if len(named) > _MOST_DEFAULTS else ""
    listed = ", ".join(named[:_MOST_DEFAULTS])
    return (f"the program's own defaults are taken, and may be changed where it runs: {listed}{more}",)

"""The forms that a text with a server's start can have, told by the text's structure, and the starts in it."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from vllm_doctor.launch import (
    bare_flags,
    budget,
    dockerfile,
    flag_variables,
    justfile,
    llm_d_scenario,
    logged_start,
    makefile,
    manifests,
    notebook,
    pasted,
    process_list,
    python_calls,
    quadlet,
    slurm,
    supervisor,
    systemd,
    terraform,
    unwrap,
    yaml_tree,
)
from vllm_doctor.launch.start import Written
from vllm_doctor.model.errors import SourceError

MAX_FENCES = 200
MAX_NESTED = 3
"""A page that holds a script that writes a manifest."""

_FENCE = re.compile(r"^[ \t]{0,16}(?:>[ \t]?)?(`{3,}|~{3,})[ \t]*([\w+.-]*)[^\n]*$", re.MULTILINE)
_HEREDOC = re.compile(r"<<-?[ \t]*(?P<quote>['\"]?)(?P<word>[A-Za-z_]\w*)(?P=quote)[^\n]*$", re.MULTILINE)
_PROSE = frozenset({"json", "output", "text", "txt", "diff", "log", "js", "go", "rust", "promql"})
_YAML = re.compile(r"---|%YAML|-[ \t]|[{\[]|\"[^\"\n]*\"[ \t]*:|[\w./-]+[ \t]*:(?:\s|$)|'[^'\n]*'[ \t]*:")
_FIRST_LINE = re.compile(r"^[^\S\n]*(?!\s|#|\{\{|\{%)[^\n]+", re.MULTILINE)
"""Neither empty, nor a comment or a template alone."""
_CUT = "the text ends with it, and nothing marks its end: what else it sets is not known"
_CONTINUED = re.compile(r"(?<=[ \t])[`^]\n")


@dataclass(frozen=True)
class Piece:
    """A text, or a part of one: the name of its file, if it is one, the line it begins in, and in how many others."""

    text: str
    name: str = ""
    line: int = 1
    nested: int = 0
    is_quoted: bool = False
    """Whether people quote it: a command in it may have lost its backslashes."""
    is_cut: bool = False
    """Whether nothing marks its end: what it holds may go on."""

    def part(self, text: str, lines_above: int, is_quoted: bool, is_cut: bool) -> Piece:
        """A text that stands in this one."""
        return Piece(text, "", self.line + lines_above, self.nested + 1, is_quoted, is_cut)


@dataclass(frozen=True)
class TextForm:
    """`is_it` tells a form by the structure of the text; `starts` are what is written in it, before it is judged."""

    name: str
    is_it: Callable[[Piece], bool]
    starts: Callable[[Piece], list[Written]]


def starts(piece: Piece) -> list[Written]:
    """The starts in a text: of the first of its forms in which a server is started. Raises SourceError."""
    for form in FORMS:
        if form.is_it(piece) and (found := form.starts(piece)):
            return found
    return []


# ---- texts that hold others


def is_page(piece: Piece) -> bool:
    """Whether it is written for people, with what is quoted between fences."""
    return bool(_fences(piece))


def _fences(piece: Piece) -> list[re.Match[str]]:
    return list(islice(_FENCE.finditer(piece.text), MAX_FENCES)) if piece.nested < MAX_NESTED else []


def _of_page(piece: Piece) -> list[Written]:
    """An offline engine counts where the page starts no server: most pages show one as the short way."""
    found = _of_blocks(_in_fences(piece, _fences(piece)))
    return [one for one in found if not one.of_keywords] or found


def _in_fences(page: Piece, fences: Sequence[re.Match[str]]) -> Iterator[Piece]:
    """What stands between the fences of a page; behind one that nothing closes, up to the page's end."""
    text, at = page.text, 0
    while at < len(fences):
        opening = fences[at]
        closing = next((n for n in range(at + 1, len(fences)) if fences[n][1].startswith(opening[1])), None)
        if opening[2].lower() not in _PROSE:
            end = len(text) if closing is None else fences[closing].start()
            block = textwrap.dedent(text[opening.end() + 1 : end])
            yield page.part(block, text.count("\n", 0, opening.end() + 1), is_quoted=True, is_cut=closing is None)
        if closing is None:
            return
        at = closing + 1


def _writes_files(piece: Piece) -> bool:
    return _HEREDOC.search(piece.text) is not None and not _is_yaml(piece)


def _of_writer(piece: Piece) -> list[Written]:
    if (of_itself := _of_script(piece)) or piece.nested == MAX_NESTED:
        return of_itself
    return _of_blocks(_in_heredocs(piece))


def _in_heredocs(script: Piece) -> Iterator[Piece]:
    """What a script that starts nothing by itself writes or hands on (a manifest for `kubectl apply -f -`, a unit).
    What stands in one is read with it, and not again."""
    text, at, line = script.text, 0, 0
    for _ in range(MAX_FENCES):
        opening = _HEREDOC.search(text, at)
        if opening is None:
            return
        start = opening.end() + 1
        line += text.count("\n", at, start)
        end = re.compile(rf"^[ \t]*{re.escape(opening['word'])}[ \t]*$", re.MULTILINE).search(text, start)
        at = end.start() if end else len(text)
        body = textwrap.dedent(text[start:at])
        if not opening["quote"]:  # the shell takes these backslashes away
            body = re.sub(r"\\([\\$`])", r"\1", body)
        yield script.part(body, line, script.is_quoted, end is None)
        line += text.count("\n", start, at)


def _of_blocks(blocks: Iterator[Piece]) -> list[Written]:
    """What stands in these pieces of a text, each by its own form; what cannot be read there is not a command."""
    found: list[Written] = []
    for block in blocks:
        try:
            found += starts(block)
        except budget.ExhaustedError:
            raise
        except SourceError:
            continue
    return found


# ---- texts of one form


def _is_yaml(piece: Piece) -> bool:
    first = _FIRST_LINE.search(piece.text)
    if first is None or logged_start.has_arguments(first[0]):  # `args: Namespace(…)` is a line of a log
        return False
    return _YAML.match(first[0].strip()) is not None


def _of_yaml(piece: Piece) -> list[Written]:
    documents = yaml_tree.read(piece.text, piece.line, piece.is_cut)
    found = manifests.starts(documents, piece.name)
    if found is None:
        raise SourceError(
            "not-vllm",
            "this YAML holds no command and no flags of a vLLM server: it is neither a compose file, nor a Kubernetes"
            " manifest, nor values of a chart or a recipe with vLLM's flags, nor a --config file of vLLM",
        )
    if not piece.is_cut:
        return found
    return [replace(one, is_open=True, notes=(*one.notes, _CUT)) for one in found]


def _is_script(piece: Piece) -> bool:
    return not (is_page(piece) or _writes_files(piece) or _is_yaml(piece))


def _of_script(piece: Piece) -> list[Written]:
    if piece.is_quoted and (read := _of_pasted(piece)):
        return read
    found = unwrap.of_script(piece.text, piece.line)
    if slurm.is_batch(piece.text):
        by_job = slurm.asked(piece.text)
        found = [replace(written, resources=slurm.granted(written.resources, by_job)) for written in found]
    return found


def _is_powershell(piece: Piece) -> bool:
    return len(_CONTINUED.findall(piece.text)) > 1 and "\\\n" not in piece.text


def _of_powershell(piece: Piece) -> list[Written]:
    """Its lines go on after a backtick, those of a batch file after ^: the rest is near enough to a shell's."""
    script = _CONTINUED.sub("\\\\\n", piece.text)
    return [replace(written, holder=None) for written in unwrap.of_script(script, piece.line)]


def _of_pasted(piece: Piece) -> list[Written]:
    """Commands over lines that a shell would not join."""
    text = pasted.joined(piece.text)
    return [] if text == piece.text else _as_pasted(unwrap.of_script(text, piece.line))


def _as_pasted(found: list[Written]) -> list[Written]:
    return [replace(written, holder=None, notes=(*written.notes, pasted.NOTE)) for written in found]


def _without_name(is_it: Callable[[str], bool], starts: Callable[[str, int], list[Written]], name: str) -> TextForm:
    """A form that is told by the text alone."""
    return TextForm(name, lambda piece: is_it(piece.text), lambda piece: starts(piece.text, piece.line))


def _is_flags(piece: Piece) -> bool:
    return bare_flags.begins(piece.text)


def _of_flags(piece: Piece) -> list[Written]:
    return bare_flags.starts(piece.text, piece.line)


# ---- Python


def _is_notebook(piece: Piece) -> bool:
    return notebook.is_notebook(piece.text)


def _of_notebook(piece: Piece) -> list[Written]:
    printed = notebook.outputs(piece.text)
    if found := notebook.starts(piece.text):
        version = logged_start.version_in(printed)
        return [replace(written, version=written.version or version) for written in found]
    if found := logged_start.starts(printed) or _of_page(Piece(notebook.prose(piece.text), "", 1, piece.nested + 1)):
        return found
    raise SourceError("not-vllm", "no cell of this notebook starts vLLM, and none printed how it was started")


def _is_python(piece: Piece) -> bool:
    return python_calls.is_python(piece.text, piece.name)


def _of_python(piece: Piece) -> list[Written]:
    found = python_calls.starts(piece.text, piece.line)
    if not found and piece.name:
        raise SourceError("not-vllm", "nothing in this Python text starts vLLM: no LLM(…), engine or `vllm serve`")
    return found


def _has_call(piece: Piece) -> bool:
    return not is_page(piece)


def _of_calls(piece: Piece) -> list[Written]:
    return python_calls.in_text(piece.text)


def _is_log(piece: Piece) -> bool:
    return logged_start.has_arguments(piece.text)


def _of_log(piece: Piece) -> list[Written]:
    return logged_start.starts(piece.text, piece.line)


FORMS: tuple[TextForm, ...] = (
    TextForm("notebook", _is_notebook, _of_notebook),
    TextForm("page", is_page, _of_page),
    TextForm("Python", _is_python, _of_python),
    TextForm(
        "Dockerfile",
        lambda piece: dockerfile.is_it(piece.text, piece.name),
        lambda piece: dockerfile.starts(piece.text, piece.line),
    ),
    _without_name(terraform.is_it, terraform.starts, "Terraform"),
    _without_name(makefile.is_it, makefile.starts, "Makefile"),
    TextForm(
        "justfile",
        lambda piece: justfile.is_it(piece.text, piece.name),
        lambda piece: justfile.starts(piece.text, piece.line),
    ),
    _without_name(llm_d_scenario.is_scenario, llm_d_scenario.starts, "scenario of llm-d-benchmark"),
    TextForm("script that writes files", _writes_files, _of_writer),
    _without_name(supervisor.is_it, supervisor.starts, "supervisor"),
    _without_name(quadlet.is_it, quadlet.starts, "quadlet"),
    _without_name(systemd.is_unit, systemd.starts, "systemd unit"),
    TextForm("flags alone", _is_flags, _of_flags),
    TextForm("YAML", _is_yaml, _of_yaml),
    TextForm("PowerShell", _is_powershell, _of_powershell),
    TextForm("shell", _is_script, _of_script),
    TextForm("shell, of which the backslashes are lost", _is_script, _of_pasted),
    TextForm("log with vLLM's arguments", _is_log, _of_log),
    TextForm("text with Python's calls", _has_call, _of_calls),
    TextForm("list of processes", _is_script, lambda piece: process_list.starts(piece.text, piece.line)),
    TextForm("a model's name and flags", _is_script, _of_flags),
    TextForm("variables", _is_script, lambda piece: flag_variables.starts(piece.text, piece.line)),
)
"""In this order: what another form could be taken for stands before it."""

"""A command that was pasted over many lines and lost its backslashes on the way: `docker run`, its options below. Pure.

A shell would end it at its first line; people who quote what runs mean all of it. Of a script that is a file of its own
that end is a fault, which is told (`shell.lost_after`).
"""

from __future__ import annotations

import re

from vllm_doctor.launch import docker

NOTE = "lines without a backslash are read as one command, as it was pasted: a shell would end it at the first"
_LONGEST = 4_000
_COMMAND = re.compile(
    r"^[ \t>]{0,8}(?:(?:\([\w.-]{1,40}\) )?[\w.@:~/\[\]-]{0,80}[$#%][ \t]+)?"
    r"(?:(?:sudo|nohup|exec|time|env)[ \t]+|[A-Za-z_]\w{0,60}=[^\s'\"]{0,200}[ \t]+){0,12}"
    r"(?P<program>(?:docker|podman|nerdctl)[ \t]+(?:container[ \t]+)?run|vllm[ \t]+serve"
    r"|python3?(?:\.\d{1,2})?[ \t]+-m[ \t]+vllm\.entrypoints\.[\w.]{1,60})(?=\s|$)",
    re.MULTILINE,
)
_FLAG = re.compile(r"-{1,2}[A-Za-z]")
_VALUE = re.compile(r"(?=\S{0,200}[\d/{])\S+|['\"]?[{\[].*")
"""What may stand alone in the line below its flag: no word of a sentence."""
_MODEL = re.compile(r"(?=[^/]{0,200}/)[\w./~:@-]{2,200}(?=\s|$)")
_LAST_IS_FLAG = re.compile(r"(?:^|\s)--?[A-Za-z][\w.-]{0,80}$")
_COMMENT = re.compile(r"[ \t]#[^'\"\n]*$")


def joined(text: str) -> str:
    """The text with a backslash at the end of each line that a pasted command goes on behind; the text itself, where no
    command lost any."""
    if _COMMAND.search(text) is None:
        return text
    lines = text.split("\n")
    at = 0
    while at < len(lines):
        end = _end(lines, at)
        for place in range(at, end):
            lines[place] = _COMMENT.sub("", lines[place].rstrip()) + " \\"
        at = end + 1
    return "\n".join(lines)


def _end(lines: list[str], at: int) -> int:
    """The last line of the command that begins in this one, which is that line itself where none is, or its author knew
    how to go on."""
    command = _COMMAND.match(lines[at]) if len(lines[at]) <= _LONGEST else None
    if command is None:
        return at
    end = at
    while end + 1 < len(lines) and _goes_on(lines[end], lines[end + 1], command["program"]):
        end += 1
    return at if any(line.rstrip().endswith("\\") for line in lines[at : end + 1]) else end


def _goes_on(line: str, below: str, program: str) -> bool:
    bare = below.strip()
    if not bare or len(bare) > _LONGEST:
        return False
    before = line.strip()
    first = bare.split(maxsplit=1)[0]
    takes_model = before.endswith("serve") or docker.is_image(before)
    return (
        _FLAG.match(bare) is not None
        or (program.endswith("run") and docker.is_image(first))
        or (takes_model and _MODEL.match(bare) is not None)
        or (_LAST_IS_FLAG.search(before) is not None and _VALUE.fullmatch(bare) is not None)
    )

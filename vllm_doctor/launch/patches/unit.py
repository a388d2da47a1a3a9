"""The drop-in of a systemd unit whose commands change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from vllm_doctor.launch import (
    rewrite,
    shell,
    systemd,
)
from vllm_doctor.launch import unwrap as launching
from vllm_doctor.launch.rewrite import UnwritableError, Wanted
from vllm_doctor.launch.start import Form, Launch


def drop_in(text: str, wanted: Mapping[int, Wanted]) -> Iterator[str]:
    """A drop-in: ExecStart= empty first, which takes away those that are there. Raises UnwritableError."""
    lines = []
    variables: dict[str, str] = {}
    for number, command in enumerate(systemd.commands(text)):
        sign = systemd.prefix(command)
        written = command[len(sign) :]
        launches = launching.of_words(shell.words(written)[0], Form.SYSTEMD, {})
        if any(rewrite.may_tell(written, launch) for launch in launches):
            raise UnwritableError("it may hold a secret, which is not printed")
        if not launches and rewrite.tells(written, Launch([], Form.SYSTEMD)):
            raise UnwritableError("another ExecStart= of it may hold a secret, which is not printed")
        if number in wanted:
            if len(launches) != 1:
                raise UnwritableError("its words do not start one server by themselves")
            [launch] = launches
            here = wanted[number]
            inner = {
                name: value
                for name, value in here.environment.items()
                if launch.image_at is not None or rewrite.has(launch, name)
            }
            variables |= {name: value for name, value in here.environment.items() if name not in inner}
            written = rewrite.in_text(written, launch, replace(here, environment=inner), systemd.quoted)
        lines += f"ExecStart={sign}{written}".split("\n")
    yield "[Service]"
    for name, value in variables.items():
        yield f"Environment={systemd.quoted(f'{name}={value}', False)}"
    yield "ExecStart="
    yield from lines

"""Scenarios of llm-d-benchmark as shell files: variables alone (`export LLMDBENCH_VLLM_…`), out of which the tool makes
the servers of each role. What a scenario leaves out has the tool's own defaults, which are not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from vllm_doctor.launch import budget, docker, shell
from vllm_doctor.launch.manifests import Values
from vllm_doctor.launch.start import Form, Resources, Word, Written
from vllm_doctor.launch.unexpanded import mark
from vllm_doctor.launch.unwrap import of_script

_EXPORTED = re.compile(r"^[ \t]*export[ \t]+LLMDBENCH_(?:VLLM|DEPLOY)_\w+=", re.MULTILINE)
_LEAST = 2
_FILE = re.compile(r"cat[ \t]*+<<-?[ \t]*+(['\"]?)(\w{1,40})\1[ \t]*+>[ \t]*+\"?\$\{?(\w{1,200})\}?\"?[ \t]*+")
_FILLED = re.compile(r"(?:REPLACE_ENV_|\$\{?)(LLMDBENCH(?:_[A-Z0-9]++){1,30}+)\}?")
_ITEM = re.compile(r"\s{0,40}- [|>][-+]?[ \t]{0,40}(?=\n)")
_PARTED = re.compile(r"____|[\s,]+")
_ROLES = {"decode": "MODELSERVICE_DECODE", "prefill": "MODELSERVICE_PREFILL", "standalone": "STANDALONE"}
_SIZES = {
    "--tensor-parallel-size": "TENSOR_PARALLELISM",
    "--data-parallel-size": "DATA_PARALLELISM",
    "--data-parallel-size-local": "DATA_LOCAL_PARALLELISM",
}
_SHARED = {
    "--max-model-len": "MAX_MODEL_LEN",
    "--block-size": "BLOCK_SIZE",
    "--max-num-seqs": "MAX_NUM_SEQ",
    "--max-num-batched-tokens": "MAX_NUM_BATCHED_TOKENS",
    "--gpu-memory-utilization": "ACCELERATOR_MEM_UTIL",
}


def is_scenario(text: str) -> bool:
    return len(_EXPORTED.findall(text)) >= _LEAST


def starts(text: str, line: int = 1) -> list[Written]:
    """The servers of each role that the variables describe."""
    variables: Mapping[str, str | None] = {}
    for simple in shell.commands(text, line):
        variables = simple.environment
    scenario = _Scenario(variables, dict(_files(text)), line)
    return [written for role in scenario.roles() for written in scenario.servers(role)]


def _files(text: str) -> Iterator[tuple[str, str]]:
    """What the scenario writes into the files that its variables name."""
    name = end = ""
    body: list[str] = []
    for line in text.split("\n"):
        if end and line.strip() == end:
            yield name, "\n".join(body)
            end = ""
        elif end:
            body.append(line)
        elif opening := _FILE.fullmatch(line):
            end, name, body = opening[2], opening[3], []
    if end:
        yield name, "\n".join(body)


@dataclass(frozen=True)
class _Scenario:
    variables: Mapping[str, str | None]
    files: Mapping[str, str]
    line: int

    def roles(self) -> list[str]:
        methods = self.variables.get("LLMDBENCH_DEPLOY_METHODS") or ""
        told = [role for role, name in _ROLES.items() if any(f"VLLM_{name}_" in key for key in self.variables)]
        if "standalone" in methods and "modelservice" not in methods:
            return ["standalone"]
        served = [role for role in told if role != "standalone" and self._of_role(role, "REPLICAS") != "0"]
        return served or ["standalone"]

    def servers(self, role: str) -> list[Written]:
        name = f"LLMDBENCH_VLLM_{_ROLES[role]}_{'ARGS' if role == 'standalone' else 'EXTRA_ARGS'}"
        given = self._filled(self.files.get(name) or self.variables.get(name) or "")
        item = _ITEM.match(given)
        found = of_script(given[item.end() :] if item else given, self.line)
        note = "what the scenario leaves out has the tool's own defaults, which are not known"
        made = [Written(self._generated(role, given), Form.VALUES, notes=(note,))]
        return [
            replace(
                written,
                form=Form.VALUES,
                place=role,
                resources=self._resources(role),
                holder=Values(),
                role="" if role == "standalone" else role,
            )
            for written in found or made
        ]

    def _of_role(self, role: str, key: str) -> str | None:
        own = self.variables.get(f"LLMDBENCH_VLLM_{_ROLES[role]}_{key}")
        return own if own is not None else self.variables.get(f"LLMDBENCH_VLLM_COMMON_{key}")

    def _generated(self, role: str, given: str) -> list[Word]:
        model = self._model()
        words = [*docker.SERVE, mark("$LLMDBENCH_DEPLOY_MODEL_LIST") if model is None else model]
        extra = [part.strip("'\"") for part in _PARTED.split(given.strip().strip("[]")) if part.strip("'\"")]
        told = {part.partition("=")[0] for part in extra}
        for flag, key in (*_SIZES.items(), *_SHARED.items()):
            if flag not in told and (value := self._of_role(role, key)) not in (None, "0"):
                words += [flag, str(value)]
        return [Word(text, self.line) for text in (*words, *extra)]

    def _filled(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            name = match[1]
            known = self._model() if name == "LLMDBENCH_DEPLOY_CURRENT_MODEL" else self.variables.get(name)
            budget.spend()
            budget.spend_on(known or "")
            return mark(f"${name}") if known is None else known

        return _FILLED.sub(value, text)

    def _model(self) -> str | None:
        listed = self.variables.get("LLMDBENCH_DEPLOY_MODEL_LIST") or ""
        return listed if listed and "," not in listed and " " not in listed else None

    def _resources(self, role: str) -> Resources:
        label = self.variables.get("LLMDBENCH_VLLM_COMMON_AFFINITY") or ""
        sizes = [
            docker.number(self._of_role(role, key) or "") for key in ("TENSOR_PARALLELISM", "DATA_LOCAL_PARALLELISM")
        ]
        asked = docker.number(self._of_role(role, "ACCELERATOR_NR") or "")
        return Resources(
            gpus=asked or (None if sizes[0] is None else sizes[0] * (sizes[1] or 1.0)),
            cpu_limit=docker.number(self._of_role(role, "CPU_NR") or ""),
            shm_bytes=docker.quantity(self._of_role(role, "SHM_MEM") or ""),
            other_shm=True,
            gpu=label.partition(":")[2] or None,
        )

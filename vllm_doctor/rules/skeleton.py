"""`vllm-doctor rules --new ID`: a rule to be filled in. `--check` says what is missing, line by line."""

from __future__ import annotations

import re
from pathlib import Path

from vllm_doctor.model.errors import UsageError
from vllm_doctor.model.kinds import Role, Stage
from vllm_doctor.rules import schemas
from vllm_doctor.rules.rule import COSTS, ID, ORIGINS

_TEXT = """\
# yaml-language-server: $schema={schema}
# What is empty must be filled in; `vllm-doctor rules --check {folder}` says what is missing.
rule: {id}
title:                 # one line: what is wrong, as a person would say it
stage:                 # {stages}
role:                  # {roles}
why:                   # why it makes a server slow, and by how much
here:
  # What it is here: sentences with values of signals in braces, as "Requests are refused at {{requests_waiting}}."
when:
  # The condition, over signals: vllm-doctor rules --signals. critical, warning or info; the highest that holds counts.
  warning:             # kv_cache_usage > 0.9 and requests_waiting > 0
threshold_from:        # {origins}
# costs: {{at_most:, basis:}}   # of what lengthens a step: a signal that bounds it in seconds, or unknown
remedies:
  - do:                # what to do, in a few words
    set: {{}}            # flags and their values: {{--max-num-seqs: 256}}
    cost:              # {costs}
    risk:              # what may get worse
    expect:            # what will be better
see:
  # Where it is described: https://...
examples:
  # At least one for each severity above, one ok and one unknown: signals and their values, and what the rule gives.
  # - {{kv_cache_usage: 0.95, requests_waiting: 4, gives: warning}}
  # - {{kv_cache_usage: 0.2, requests_waiting: 0, gives: ok}}
  # - {{requests_waiting: 4, gives: unknown}}
"""


def write(id: str, folder: Path) -> Path:
    """Writes folder/ID.yaml; its path. Raises UsageError where it cannot, or where a file is there already."""
    if not re.fullmatch(ID, id):
        raise UsageError(f"a rule's id is lower case words joined by '-'; it is {id!r}")
    text = _TEXT.format(
        schema=schemas.path("rule"),
        folder=folder,
        id=id,
        stages=", ".join(Stage),
        roles=", ".join(Role),
        origins=", ".join(ORIGINS),
        costs=", ".join(COSTS),
    )
    path = folder / f"{id}.yaml"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} is there already: it was left as it is") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
    return path

"""The configuration file: defaults of some options, for all commands that have them.

`~/.config/vllm-doctor/config.toml`, or below XDG_CONFIG_HOME. What stands on the command line goes before it. A file
that is not as it must be is an error, never half a configuration.
"""

from __future__ import annotations

import os

from vllm_doctor.cli.options import GOALS, ONE_DAY, SLOS
from vllm_doctor.model.errors import UsageError
from vllm_doctor.text import durations, near

TYPE_CHECKING = False  # as in options.py
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

_MOST = 64 * 1024
"""Bytes of a configuration."""
_SHOWN = 40


def path() -> str | None:
    """Where it is looked for; None: there is no home."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(base):  # as the specification has it: a relative one is not used
        home = os.path.expanduser("~")
        if not os.path.isabs(home):
            return None
        base = os.path.join(home, ".config")
    return os.path.join(base, "vllm-doctor", "config.toml")


def fill(options: argparse.Namespace, names: Iterable[str]) -> None:
    """Set those of these options that the file sets and the command line does not. Raises UsageError."""
    file = path()
    if file is None or not os.path.lexists(file):
        return
    found = _read(file)
    for name in names:
        if name in found:
            _SET[name](options, found[name])


def _set_window(options: argparse.Namespace, seconds: float) -> None:
    if options.window is None and not (options.state or options.profile):  # a hook's first look, and a profile's
        options.window = seconds


def _set_goal(options: argparse.Namespace, goal: str) -> None:
    options.goal = options.goal or goal


def _set_slo(options: argparse.Namespace, slos: list[str]) -> None:
    options.slo = [*slos, *options.slo]  # of two the later one holds


def _set_rules(options: argparse.Namespace, folders: list[str]) -> None:
    options.rules = [*folders, *options.rules]


def _set_skip(options: argparse.Namespace, ids: list[str]) -> None:
    options.skip = [*(id for id in ids if id not in options.rule), *options.skip]


def _set_theme(_: argparse.Namespace, theme: str) -> None:
    os.environ.setdefault("TEXTUAL_THEME", theme)


_SET: Mapping[str, Callable[..., None]] = {
    "window": _set_window,
    "goal": _set_goal,
    "slo": _set_slo,
    "rules": _set_rules,
    "skip": _set_skip,
    "theme": _set_theme,
}


def _read(file: str) -> dict[str, object]:
    """The settings, each of its type. Raises UsageError: one line, which shows no value that is not to be there."""
    import tomllib  # these two late: most hosts have no such file

    from vllm_doctor.text import files

    try:
        raw = files.read(file, _MOST)
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}); --no-config does without") from None
    if len(raw) > _MOST:
        raise UsageError(f"{file} is larger than {_MOST // 1024} KiB: no configuration; --no-config does without")
    try:
        table = tomllib.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        where = str(error).rpartition(" (at ")[2].rstrip(")") if " (at " in str(error) else "it is no UTF-8 or too deep"
        raise UsageError(f"{file} is no TOML: {where}; --no-config does without") from None
    return {key: _checked(file, key, value) for key, value in table.items()}


def _checked(file: str, key: str, value: object) -> object:
    if key not in _CHECKED:
        what = near.asked(key[:_SHOWN], _CHECKED, f"; there are {', '.join(_CHECKED)}")
        secret = "; secrets do not belong there: --token-file" if _is_secret(key) else what
        raise UsageError(f"{file}: no setting {key[:_SHOWN]!r}{secret}")
    check, example = _CHECKED[key]
    try:
        return check(value)
    except (ValueError, OverflowError):
        raise UsageError(f"{file}: {key}: write {example}") from None


def _is_secret(key: str) -> bool:
    from vllm_doctor.text import secret_names

    return secret_names.is_secret(key) or key in ("header", "headers")


def _window(value: object) -> float:
    seconds = float(value) if type(value) in (int, float) else durations.parse(_text(value))  # type: ignore[arg-type]
    if not 0 <= seconds <= ONE_DAY:
        raise ValueError
    return seconds


def _goal(value: object) -> str:
    if value not in GOALS:
        raise ValueError
    return str(value)


def _slos(value: object) -> list[str]:
    if not isinstance(value, dict) or not value.keys() <= set(SLOS):
        raise ValueError
    for target in value.values():
        if not _text(target)[-1:].isalpha() or durations.parse(target) > ONE_DAY:
            raise ValueError
    return [f"{name}={target}" for name, target in value.items()]


def _folders(value: object) -> list[str]:
    return [os.path.expanduser(folder) for folder in _texts(value)]


def _texts(value: object) -> list[str]:
    found = [_text(one) for one in (value if isinstance(value, list) else [value])]
    if not all(found):
        raise ValueError
    return found


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise ValueError
    return value


_CHECKED: Mapping[str, tuple[Callable[[object], object], str]] = {
    "window": (_window, 'window = "10s"'),
    "goal": (_goal, " or ".join(f'goal = "{goal}"' for goal in GOALS)),
    "slo": (_slos, 'slo = {ttft = "2s", itl = "50ms"}'),
    "rules": (_folders, 'rules = ["~/my-rules"]'),
    "theme": (_text, 'theme = "nord"'),
    "skip": (_texts, 'skip = ["prefix-cache-off"]'),
}

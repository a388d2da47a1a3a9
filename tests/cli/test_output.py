from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vllm_doctor.cli.options import Parser, add_examining
from vllm_doctor.cli.output import is_interactive, write_folder, write_whole


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def failing() -> Iterator[bytes]:
    yield b"half"
    raise KeyboardInterrupt


def test_what_is_not_finished_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text("before")
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, failing())
    assert [entry.read_text() for entry in tmp_path.iterdir()] == ["before"]


@pytest.mark.parametrize("before", [None, 0o600, 0o644, 0o666])
@pytest.mark.parametrize(
    ("mask", "name", "is_private", "expected"),
    [
        (0o022, "report.json", False, 0o644),
        (0o027, "report.json", False, 0o640),
        (0o077, "report.json", False, 0o600),
        (0o077, "report.prom.json", False, 0o600),
        (0o077, "vllm.prom", False, 0o644),  # node_exporter reads it as another user
        (0o000, "r.tar.gz", True, 0o600),
        (0o022, "r.prom", True, 0o600),
    ],
)
def test_the_umask_holds(
    before: int | None,
    mask: int,
    name: str,
    is_private: bool,
    expected: int,
    tmp_path: Path,
    umask: Callable[[int], int],
) -> None:
    path = tmp_path / name
    if before is not None:
        path.touch()
        path.chmod(before)
    umask(mask)
    write_whole(path, [b"new"], is_private)
    assert (mode(path), path.read_text()) == (expected, "new")
    assert os.listdir(tmp_path) == [name]


def test_nobody_reads_it_while_it_is_written(tmp_path: Path, umask: Callable[[int], int]) -> None:
    umask(0o077)
    seen: list[int] = []

    def pieces() -> Iterator[bytes]:
        seen.extend(mode(entry) for entry in tmp_path.iterdir())
        yield b"new"

    write_whole(tmp_path / "report.json", pieces())
    assert seen == [0o600]


def test_a_link_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "of-another").write_text("before")
    (tmp_path / "report.json").symlink_to("of-another")
    write_whole(tmp_path / "report.json", [b"new"])
    assert (tmp_path / "of-another").read_text() == "before"
    assert not (tmp_path / "report.json").is_symlink()


def test_the_umask_holds_for_a_folder(tmp_path: Path, umask: Callable[[int], int]) -> None:
    umask(0o027)
    write_folder(tmp_path / "alerts", {"rules.yaml": "groups: []\n"})
    assert (mode(tmp_path / "alerts"), mode(tmp_path / "alerts/rules.yaml")) == (0o750, 0o640)


@pytest.mark.parametrize(("words", "expected"), [([], True), (["--profile"], True), (["--profile", "--text"], False)])
def test_a_terminal_is_drawn_on_unless_text_is_asked_for(
    words: list[str], expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    parser = Parser("x", "")
    add_examining(parser)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("sys.stdout", Terminal())
    assert is_interactive(parser.parse_args(words)) is expected


class Terminal:
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

"""Values below their headings, by indentation, as nvidia-smi -q and amd-smi print them."""

from __future__ import annotations

_DEEP = 3
_MOST = 20_000


class Outline:
    """One GPU's values by the last names of their paths: ("Max Clocks", "SM"), or ("Product Name",) alone.

    Where a name stands twice, the first counts. Text that lost its indentation is flat: a heading then holds until the
    next one.
    """

    def __init__(self, line: int) -> None:
        self.line = line
        self._said: dict[tuple[str, ...], str] = {}
        self._open: list[tuple[int, str]] = []
        self._is_nested = False

    def __contains__(self, path: tuple[str, ...]) -> bool:
        return path in self._said

    def heading(self, depth: int, name: str) -> None:
        self._close(depth)
        if len(self._open) < _DEEP * 3:
            self._open.append((depth, name))
        self._say((name,), "")

    def value(self, depth: int, name: str, said: str) -> None:
        if self._open and depth > self._open[-1][0]:
            self._is_nested = True
        elif self._is_nested:
            self._close(depth)
        self._say((*(name for _, name in self._open[1 - _DEEP :]), name), said)

    def said(self, *paths: tuple[str, ...]) -> str:
        """What stands there: at the first of these that says something."""
        return next((said for path in paths if (said := self._said.get(path, ""))), "")

    def below(self, name: str) -> dict[str, str]:
        """All values of a heading."""
        return {path[-1]: said for path, said in self._said.items() if len(path) == 2 and path[0] == name}

    def _say(self, path: tuple[str, ...], said: str) -> None:
        for start in range(len(path)):
            if len(self._said) < _MOST:
                self._said.setdefault(path[start:], said)

    def _close(self, depth: int) -> None:
        while self._open and self._open[-1][0] >= depth:
            self._open.pop()

"""The README's screenshots, of the demo. usage: python -m tests.tui.screenshots [DIR]

Made without a terminal, from the recording and with a clock that stands still: the same at each run. A test compares
what stands in docs/ with what the program shows now.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from textual.pilot import Pilot

from tests.paths import ROOT
from tests.tui.showing import host, in_utc, run, watched
from tests.tui.watching import Pages
from vllm_doctor.session.view_model import ViewModel
from vllm_doctor.tui.app import DoctorApp

DOCS = ROOT / "docs"
SIZE = (100, 30)
SHOTS: dict[str, tuple[str, ...]] = {"overview": (), "finding": ("enter",), "log": ("4",)}
"""Name -> the keys that lead there."""


def demo() -> ViewModel:
    """The demo's server after a minute, seen on its own host."""
    return watched(Pages("preemption"), host(), seconds=60)


def shots() -> dict[str, str]:
    """Name -> the screen as SVG."""
    view_model = demo()
    found: dict[str, str] = {}

    async def steps(app: DoctorApp, pilot: Pilot[None]) -> None:
        for name, keys in SHOTS.items():
            await pilot.press("1", *keys)
            await pilot.pause()
            found[name] = app.export_screenshot(title="vllm-doctor demo", simplify=True)

    run(steps, view_model, SIZE)
    return found


def main() -> None:
    os.environ.pop("NO_COLOR", None)
    in_utc(os.environ.__setitem__)
    time.tzset()
    folder = Path(sys.argv[1]) if sys.argv[1:] else DOCS
    folder.mkdir(exist_ok=True)
    for name, svg in shots().items():
        (folder / f"{name}.svg").write_text(svg, "utf-8")
        print(folder / f"{name}.svg")


if __name__ == "__main__":
    main()

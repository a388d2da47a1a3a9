"""The table of published inputs is whole, and docs/inputs.md has it."""

from __future__ import annotations

from tests.inputs import survey
from tests.paths import ROOT


def test_the_page_has_the_table_as_the_command_prints_it() -> None:
    page = (ROOT / "docs" / "inputs.md").read_text("utf-8")
    rows = survey.examples()
    assert "\n".join([survey.counted(rows), "", *survey.table(rows)]) in page


def test_each_example_says_where_it_stands_and_what_was_read() -> None:
    rows = survey.examples()
    assert len(rows) >= 80
    assert len({row.file for row in rows}) == len(rows)
    for row in rows:
        assert row.format
        assert row.source
        assert {row.before, row.after} <= {"right", "partly", "refused"}
        assert row.after == "right" or row.remark, row.file

"""Public configurations that are about no regression: the table is silent, but where an entry truly holds."""

from __future__ import annotations

from tests.regressions import survey


def test_no_entry_speaks_with_certainty_where_it_does_not_hold() -> None:
    found = list(survey.spoken(survey.rows()))
    assert [(row.source, sure) for row, sure, _ in found if sure != row.affected] == []
    assert sum(1 for _, sure, _ in found if not sure) >= 200


def test_each_row_tells_where_it_stands() -> None:
    for row in survey.rows():
        repository, _, place = row.source.partition("@")
        assert repository.count("/") == 1, row
        assert " " in place, row
        assert row.command, row

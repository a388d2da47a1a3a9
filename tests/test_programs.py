from __future__ import annotations

import pytest

from tests.programs import needed

LINE = "no-such-program is not installed: apt-get install --no-install-recommends some-package"


def test_the_first_that_is_there() -> None:
    assert needed("coreutils", "no-such-program", "env").endswith("/env")


def test_where_it_is_not_there_the_test_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=LINE):
        needed("some-package", "no-such-program")


def test_in_ci_it_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=LINE):
        needed("some-package", "no-such-program")

from __future__ import annotations

import pytest

from vllm_doctor.text.encoding import decoded

TEXT = "INFO 11-20 10:00:00 héllo\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_what_was_written_is_read(encoding: str) -> None:
    assert decoded((TEXT * 20).encode(encoding)) == TEXT * 20


def test_what_is_no_text_does_not_stop_it() -> None:
    assert decoded(b"a\xffb") == "a\N{REPLACEMENT CHARACTER}b"

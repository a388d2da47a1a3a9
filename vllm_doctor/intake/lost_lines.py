"""Records of vLLM within a sentence, each on a line of its own again: forms and chats lose the ends of lines. Pure.

In a server's own log a record behind a space is text of a client, which is left alone there (`sources/log/entry.py`);
so this is for texts in which no line can be read as a log's.
"""

from __future__ import annotations

import re

MOST_CHARS = 1 << 16
_RECORD = re.compile(
    r"(?<=\S) {1,4}((?:\(?[A-Za-z]\w{0,40} pid=\d{1,10}\) ){0,2}"
    r"(?:(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[?[\w./-]{1,200}\.py:\d{1,6}\] "
    r"|INFO: {1,5}[\d.:]{3,40}:\d{1,5} - \"))"
)
_STATISTICS = re.compile(r"(GPU KV cache usage: \d{1,3}\.\d%(?:, [A-Z][\w ]{3,40}: \d{1,3}\.\d%){0,4}\.?) (?=\S)")
"""With the sentence that goes on behind them."""


def restored(text: str) -> str | None:
    """The text with these records apart; None where there are none, or it is too long to be what people write."""
    if len(text) > MOST_CHARS:
        return None
    apart = _RECORD.sub(r"\n\1", text)
    return None if apart == text else _STATISTICS.sub(r"\1\n", apart)

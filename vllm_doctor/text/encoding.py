"""Text as it comes in files of others: UTF-8, or UTF-16 as PowerShell's > writes it."""

from __future__ import annotations

import codecs


def utf16(head: bytes) -> str | None:
    """The encoding, where it is UTF-16: by its mark, or every second byte is zero."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and not head.startswith(codecs.BOM_UTF32_LE):
        return "utf-16"
    sample = head[:512]
    even, odd = sample[::2], sample[1::2]
    if len(sample) < 8:
        return None
    if odd.count(0) > 0.9 * len(odd) and not even.count(0):
        return "utf-16-le"
    if even.count(0) > 0.9 * len(even) and not odd.count(0):
        return "utf-16-be"
    return None


def decoded(data: bytes) -> str:
    """The text, with a replacement for what is none."""
    return data.decode(utf16(data) or "utf-8-sig", "replace")

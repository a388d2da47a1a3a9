"""Prompts out of the lines of a server that logs its requests, as each release writes them."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from vllm_doctor.model.prefix import Change, Unit
from vllm_doctor.sources.log.bytes_stream import Held
from vllm_doctor.sources.prefix import request_log

TEXT = 'You are Ada\'s "assistant".\nBe brief; né à Paris. 你好 \\ \t' * 40


def old(number: int, prompt: str, tokens: list[int] | None = None, adapter: str = "") -> str:
    """As 0.6 to 0.11 write it."""
    lora = f"LoRARequest(lora_name='{adapter}', lora_int_id=1, lora_path='/a')" if adapter else "None"
    return (
        f"INFO 11-20 10:52:03 [logger.py:42] Received request chatcmpl-{number}: prompt: {prompt!r}, params:"
        f" SamplingParams(n=1, stop=[], max_tokens=256), prompt_token_ids: {tokens}, prompt_embeds shape: None,"
        f" lora_request: {lora}."
    )


def new(number: int, prompt: str | None, tokens: list[int]) -> str:
    """As 0.32 writes it."""
    return (
        f"(APIServer pid=7) DEBUG 11-20 10:52:03 [entrypoints/serve/utils/request_logger.py:51] Request"
        f" chatcmpl-{number} details: prompt: {prompt!r}, prompt_token_ids: {tokens}, prompt_embeds shape: None."
    )


def examined(*lines: str, show_text: bool = False):  # type: ignore[no-untyped-def]
    text = "\n".join(lines).encode() + b"\n"
    return request_log.examine([Held("a.log", text, 0.0)], "a.log", show_text)


def tokens(count: int, seed: int) -> list[int]:
    return random.Random(seed).choices(range(30000), k=count)


def test_a_new_line_has_tokens() -> None:
    system = tokens(500, 1)
    found, notes = examined(*(new(n, f"text {n}", [*system[:70], 50000 + n, *system[70:]]) for n in range(3)))
    assert found is not None
    assert (found.unit, found.prompts, notes) == (Unit.TOKEN, 3, ())
    assert found.worst is not None
    assert (found.worst.change, found.worst.at, found.worst.again) == (Change.COUNTER, 70, 2 * 430)


def test_an_old_line_has_characters() -> None:
    found, _ = examined(*(old(n, f"Now: {n}\n{TEXT}") for n in (1, 2)))
    assert found is not None
    assert found.unit is Unit.CHARACTER
    assert found.worst is not None
    assert (found.worst.change, found.worst.at, found.worst.again) == (Change.HEAD, 5, len(TEXT) + 1)


@pytest.mark.parametrize("quote", ["it's", 'say "so"', 'it\'s "both"', "line\nend", "tab\t\\n", "\x1b[31m", "\u2028"])
def test_characters_count_as_they_are_not_as_they_are_escaped(quote: str) -> None:
    found, _ = examined(*(old(n, quote * 100 + f"{n}" + TEXT) for n in (1, 2)))
    assert found is not None
    assert found.worst is not None
    assert found.worst.at == 100 * len(quote)


def test_the_list_of_tools() -> None:
    def with_tools(*names: str) -> str:
        tools = "\n".join(
            json.dumps({"type": "function", "function": {"name": name, "parameters": {}}}) for name in names
        )
        return f"{TEXT}# Tools\n<tools>\n{tools}\n</tools>\n{TEXT}"

    found, _ = examined(old(1, with_tools("read_file", "zip")), old(2, with_tools("read_file", "list_folder", "zip")))
    assert found is not None
    assert found.worst is not None
    assert found.worst.change is Change.TOOLS


def test_another_adapter_is_no_loss() -> None:
    found, _ = examined(old(1, TEXT, adapter="a"), old(2, TEXT, adapter="b"))
    assert found is not None
    assert (found.groups[0].change, found.again) == (Change.KEYS, 0)


def test_within_dockers_json() -> None:
    lines = [json.dumps({"log": old(n, f"{n}{TEXT}") + "\n", "stream": "stderr"}) for n in (1, 2)]
    found, _ = examined(*lines)
    assert found is not None
    assert found.worst is not None
    assert found.worst.at == 0


def test_what_is_cut_is_told() -> None:
    """--max-log-len 100 leaves as many tokens as characters."""
    _, notes = examined(*(new(n, TEXT[:100], tokens(100, n)) for n in range(2)))
    assert notes == ("prompts are logged up to 100 tokens (--max-log-len)",)


def test_a_broken_line_is_told() -> None:
    found, notes = examined(old(1, TEXT)[:200], old(2, TEXT, [1, 2, 3]).partition(", 3]")[0], old(3, "a"))
    assert (found, notes) == (None, ("2 requests are not logged on one line: their prompts were not compared",))


@pytest.mark.parametrize(
    "line",
    [
        "Received request x: prompt: '\\d', params: ",
        "Received request x: prompt: '\\U00ffffff', params: ",
        "Received request x: prompt: 'a\0', params: ",
        'Received request x: prompt: "',
        "Request x details: prompt: None, prompt_token_ids: [1, 99999999999999999999999, ,,, ]",
        "Request x details: prompt: None, prompt_token_ids: [" + "9" * 100000,
        '{"log": "Received request x: prompt: \'',
    ],
)
def test_hostile_lines_are_borne(line: str) -> None:
    found, _ = examined(line, line)
    assert found is None or found.again == 0


def test_no_text_is_kept_unless_asked_for() -> None:
    found, _ = examined(*(old(n, f"{n}{TEXT}") for n in (1, 2)))
    assert "assistant" not in repr(found)
    found, _ = examined(*(old(n, f"{n}{TEXT}") for n in (1, 2)), show_text=True)
    assert found is not None
    assert [shown[:8] for shown in found.groups[0].shown] == ["1You are", "2You are"]


def test_a_file_and_lines_across_blocks(tmp_path: Path) -> None:
    system = tokens(20000, 1)
    filler = "INFO 11-20 10:52:03 [api_server.py:1900] nothing of interest\n" * 3000
    log = tmp_path / "a.log"
    log.write_text("".join(new(n, None, [*system, n]) + "\n" + filler for n in range(5)))
    found, _ = request_log.examine([log], "a.log")
    assert found is not None
    assert (found.prompts, found.groups[0].at) == (5, 20000)


def test_a_line_that_never_ends_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_log, "MOST_OF_A_LINE", 1 << 20)
    log = tmp_path / "a.log"
    log.write_text(f"x\n{'prompt: ' * 900_000}\n{old(1, TEXT)}\n{old(2, TEXT)}\n")
    found, _ = request_log.examine([log], "a.log")
    assert found is not None
    assert found.prompts == 2

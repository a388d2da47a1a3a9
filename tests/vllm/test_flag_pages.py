from __future__ import annotations

import pytest

from vllm_doctor.vllm import flag_pages, flags
from vllm_doctor.vllm.flags import Parser

NEWEST = flags.newest()


@pytest.fixture
def parser() -> Parser:
    found = flags.parser("0.32.0")
    assert found is not None
    return found


def _page(parser: Parser, name: str) -> tuple[str, bool]:
    page = flag_pages.page(parser, name, "")
    return " ".join(page.text.split()), page.is_there


def test_the_list_of_a_version(parser: Parser) -> None:
    text = flag_pages.listing(parser, "")
    assert text.startswith("vLLM 0.32.0: ")
    assert "\n--max-num-seqs " in text
    assert "\n--tensor-parallel-size -tp " in text
    assert "swap-space" not in text
    assert max(map(len, text.splitlines())) <= 120


def test_the_page_of_a_flag(parser: Parser) -> None:
    text, is_there = _page(parser, "--max-num-seqs")
    assert is_there
    assert "vLLM 0.32.0 takes it" in text
    assert "takes int" in text
    assert "none: vLLM decides 1024 on a GPU of 160 GiB or more 1024 on one of 70 GiB" in text
    assert f"since 0.4.3 or before until still there in {NEWEST}" in text


def test_choices_and_default(parser: Parser) -> None:
    text, _ = _page(parser, "--performance-mode")
    assert "choices balanced interactivity throughput" in text
    assert "default balanced" in text


@pytest.mark.parametrize("name", ["--max_num_seqs", "--max-num-seqs=7", "max-num-seqs"])
def test_a_flag_may_be_written_loosely(parser: Parser, name: str) -> None:
    text, is_there = _page(parser, name)
    assert is_there
    assert "spelled --max-num-seqs" in text


def test_the_beginning_of_a_flag_is_said_to_be_short_for_it(parser: Parser) -> None:
    text, is_there = _page(parser, "--max-num-se")
    assert is_there
    assert "--max-num-se: short for --max-num-seqs" in text


def test_a_flag_that_is_gone(parser: Parser) -> None:
    text, is_there = _page(parser, "--swap-space")
    assert not is_there
    assert "vLLM 0.32.0 does not have it" in text
    assert "was in 0.4.3 to 0.17.1" in text
    assert "gone the V1 engine never swaps" in text
    assert "source " in text


def test_a_flag_that_was_renamed(parser: Parser) -> None:
    text, is_there = _page(parser, "--speculative-model")
    assert not is_there
    assert "now --speculative-config" in text


def test_a_flag_that_is_to_come() -> None:
    parser = flags.parser("0.11.0")
    assert parser is not None
    text, is_there = _page(parser, "--watermark")
    assert not is_there
    assert "is in 0.24.0 and later" in text


def test_a_flag_of_no_version(parser: Parser) -> None:
    text, is_there = _page(parser, "--max-nun-seqs")
    assert not is_there
    assert "was in no known version" in text
    assert "nearest --max-num-seqs" in text


def test_environment_variables(parser: Parser) -> None:
    text, is_there = _page(parser, "VLLM_LOGGING_LEVEL")
    assert is_there
    assert "default INFO since 0.8.0 or before" in text
    text, is_there = _page(parser, "VLLM_ATTENTION_BACKEND")
    assert not is_there
    assert "now --attention-backend" in text


def test_metrics(parser: Parser) -> None:
    text, is_there = _page(parser, "vllm:kv_cache_usage_perc")
    assert is_there
    assert "kind gauge" in text
    text, is_there = _page(parser, "vllm:gpu_cache_usage_perc")
    assert not is_there
    assert "was in 0.4.3 to 0.11.2 now vllm:kv_cache_usage_perc" in text
    text, is_there = _page(parser, "vllm:num_generate_tokens_total")
    assert not is_there
    assert "was in no known version nearest vllm:generation_tokens_total" in text


def test_the_remark_on_the_version_stands_on_every_page(parser: Parser) -> None:
    for name in ("--max-num-seqs", "--no-such", "VLLM_LOGGING_LEVEL", "vllm:num_requests_running"):
        assert "judged so" in flag_pages.page(parser, name, "judged so").text
    assert "judged so" in flag_pages.listing(parser, "judged so")

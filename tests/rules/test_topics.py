"""What people ask, by topic: each thing that is said to answer it exists, and the page is that of the data."""

from __future__ import annotations

import pytest

from tests.paths import PACKAGE
from tests.rules import topics
from tests.rules.topics import Topic
from vllm_doctor.rules import rule_set

TOPICS = topics.topics()
SHIPPED = rule_set.load([])


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_what_answers_a_topic_exists(topic: Topic) -> None:
    assert set(topic.rules) <= {rule.id for rule in SHIPPED.rules}
    assert set(topic.regressions) <= {fault.id for fault in SHIPPED.faults}
    assert all((PACKAGE / "cli" / f"{command}.py").is_file() for command in topic.commands)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_a_topic_that_nothing_answers_has_the_reason(topic: Topic) -> None:
    assert len(set(topic.threads)) >= 2
    assert topic.rules or topic.regressions or topic.commands or topic.lacks


def test_each_topic_stands_there_once() -> None:
    assert len({topic.name for topic in TOPICS}) == len(TOPICS)


def test_the_page_is_that_of_the_data() -> None:
    assert topics.PAGE.read_text("utf-8") == topics.page(), "python -m tests.rules.topics writes it"

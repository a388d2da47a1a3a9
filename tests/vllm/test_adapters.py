from __future__ import annotations

import pytest

from vllm_doctor.model.reading import Known, Unknown
from vllm_doctor.model.reason import Reason
from vllm_doctor.vllm import adapters


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ("a=/loras/a b=org/b", ("/loras/a", "org/b")),
        ('a=/loras/a {"name": "b", "path": "/loras/b", "base_model_name": "m"}', ("/loras/a", "/loras/b")),
        ("[LoRAModulePath(name='a', path='/loras/a', base_model_name=None)]", ("/loras/a",)),
        ("/loras/a", ()),
        ("", ()),
    ],
)
def test_the_adapters_of_a_command(value: str, paths: tuple[str, ...]) -> None:
    assert adapters.paths(value) == paths


def test_how_many_a_command_names() -> None:
    assert adapters.of_facts({adapters.FLAG: Known("a=/a b=/b")}) == {adapters.NAMED: Known(2.0)}
    assert adapters.of_facts({adapters.FLAG: Known("[masked]")}) == {}
    assert adapters.of_facts({adapters.FLAG: Unknown(Reason.NOT_SET)}) == {}


@pytest.mark.parametrize(
    ("config", "rank"),
    [
        ({"r": 8}, 8.0),
        ({"r": 8, "rank_pattern": {"q_proj": 64, "v_proj": 4}}, 64.0),
        ({"r": True}, None),
        ({"r": -1, "rank_pattern": []}, None),
        ({}, None),
    ],
)
def test_the_rank_of_an_adapter(config: dict[str, object], rank: float | None) -> None:
    assert adapters.rank(config) == rank

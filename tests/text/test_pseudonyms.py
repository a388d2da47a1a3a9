from __future__ import annotations

import pytest

from vllm_doctor.text.pseudonyms import Pseudonyms


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("http://gpu-7:8000/v1", "http://host-1:8000/v1"),
        ("http://localhost:8000 and 127.0.0.1, 0.0.0.0, ::1", "http://localhost:8000 and 127.0.0.1, 0.0.0.0, ::1"),
        ("10.1.2.3:5000 10.1.2.4 10.1.2.3", "address-1:5000 address-2 address-1"),
        ("[fd00:1::2]:80", "[address-1]:80"),
        ("at 10:15:30, 00000000:3B:00.0, std::vector, version 550.54.15", None),
        ("see https://docs.vllm.ai/en/x and https://github.com/vllm-project/vllm", None),
        ("/home/jdoe/models/a and user jdoe", "/path-1 and user user-1"),
        ("/usr/lib/python3/x.py and /proc/1/stat and POST /v1/chat/completions", None),
        ("/opt/v/lib/python3.11/site-packages/vllm/x.py", "/path-1/lib/python3.11/site-packages/vllm/x.py"),
        ("jo@acme.com", "user-1"),
        ("db.acme.internal is db.acme.internal", "host-1 is host-1"),
        ("model=org/name, 3/4 of it, a/b", None),
        ("vllm:num_requests_running{engine=\"0\"} 1", None),
    ],
)  # fmt: skip
def test_names_become_pseudonyms(text: str, shared: str | None) -> None:
    names = Pseudonyms()
    names.learn(text)
    assert names.text(text) == (text if shared is None else shared)
    assert names.text(names.text(text)) == names.text(text)


def test_a_name_that_one_text_tells_is_found_in_the_others() -> None:
    names = Pseudonyms(["my-box"], ["jdoe"])
    names.learn("host='gpu-9'")
    assert (
        names.text("GPU-9 and my-box, not my-box-2 nor gpu-99, of jdoe")
        == "host-1 and host-2, not my-box-2 nor gpu-99, of user-1"
    )
    assert names.counts == {"host": 2, "user": 1}


@pytest.mark.parametrize("host", ["vllm", "localhost", "engine", "a", "10", "metrics"])
def test_words_are_no_names(host: str) -> None:
    names = Pseudonyms([host])
    assert names.text(f"vllm engine metrics {host} a 10") == f"vllm engine metrics {host} a 10"

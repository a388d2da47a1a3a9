"""Which addresses are this machine's."""

from __future__ import annotations

import socket

import psutil
import pytest

from vllm_doctor.session.sources.server import is_here

OWN = [
    address.address
    for addresses in psutil.net_if_addrs().values()
    for address in addresses
    if address.family in (socket.AF_INET, socket.AF_INET6)
]


@pytest.mark.parametrize("host", [*OWN, "localhost", "0.0.0.0", "::1", socket.gethostname().lower()])
def test_an_address_of_this_machine(host: str) -> None:
    assert is_here(host)


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "example.org", "gpu1", "", "x" * 300, "fe80::1%none"])
def test_what_is_elsewhere(host: str) -> None:
    assert not is_here(host)

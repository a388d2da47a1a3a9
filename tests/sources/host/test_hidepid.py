"""A /proc that hides the processes of other users, mounted for real: that nothing was found is told with the reason."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_examine_local import fake_vllm
from tests.paths import ROOT
from tests.programs import needed

pytestmark = pytest.mark.xdist_group("host")  # its servers are seen by all who look at this host

_NOBODY = 65534


def by_another(option: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The doctor as another user, under a /proc with this option."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a /proc and become another user")
    mount = f"mount -t proc -o {option} proc /proc"
    user = f"setpriv --reuid={_NOBODY} --regid={_NOBODY} --clear-groups"
    inside = [needed("util-linux", "unshare"), "-m", "sh", "-c"]
    if subprocess.run([*inside, mount], capture_output=True, check=False).returncode:
        pytest.skip("a /proc cannot be mounted here: that needs CAP_SYS_ADMIN")
    if subprocess.run([*inside, f"{user} test -r {shlex.quote(__file__)}"], check=False).returncode:
        pytest.skip(f"another user cannot read {ROOT}")
    doctor = shlex.join([sys.executable, "-m", "vllm_doctor", *arguments, "--window", "0"])
    script = f"cd {shlex.quote(str(ROOT))} && {mount} && exec {user} {doctor}"
    return subprocess.run([*inside, script], capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("option", ["hidepid=1", "hidepid=2"])
def test_where_other_users_processes_are_hidden_that_is_told(option: str) -> None:
    ran = by_another(option)
    assert ran.returncode == 3
    assert "/proc hides the processes of other users here (mounted with hidepid); run vllm-doctor as" in ran.stderr


def test_where_they_are_not_it_is_not() -> None:
    assert "hidepid" not in by_another("hidepid=0", "--timeout", "20").stderr


def test_a_server_of_this_host_by_its_url(tmp_path: Path) -> None:
    with fake_vllm(tmp_path) as server:
        ran = by_another("hidepid=2", server.url, "--json")
    assert "is not known: /proc hides it (mounted with hidepid); run vllm-doctor as its user, or as root" in ran.stdout

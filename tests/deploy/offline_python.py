"""Python for .ci/release where nothing is fetched: `-m venv` makes environments that see the tests' packages.

Their `pip` installs a wheel as pip does, without what it depends on; of the tools that it would fetch, `build` builds
with hatchling, and `twine` keeps what it was asked.
"""

import os
import sys
import sysconfig
import venv
from pathlib import Path

PIP = """#!{python}
import runpy, sys
from pathlib import Path
if {{"build", "twine"}} <= {{*sys.argv[1:]}}:
    twine = Path(sys.executable).with_name("twine")
    twine.write_text("#!/bin/sh\\necho twine $*\\n")
    twine.chmod(0o755)
else:
    sys.argv += ["--no-index", "--no-deps", "--no-compile"]
    runpy.run_module("pip", run_name="__main__")
"""
BUILD = """import subprocess, sys, tarfile, tempfile
from pathlib import Path
dist = Path(sys.argv[sys.argv.index("--outdir") + 1]).absolute()
quiet = subprocess.DEVNULL
hatch = [sys.executable, "-m", "hatchling", "build", "-d", str(dist), "-t"]
subprocess.run([*hatch, "sdist"], check=True, stdout=quiet, stderr=quiet)
with tempfile.TemporaryDirectory() as made:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as held:
        held.extractall(made, filter="data")
    (root,) = Path(made).iterdir()
    subprocess.run([*hatch, "wheel"], cwd=root, check=True, stdout=quiet, stderr=quiet)
"""

if sys.argv[1:3] != ["-m", "venv"]:
    os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
folder = Path(sys.argv[3])
venv.create(folder, symlinks=True)
python = folder / "bin" / "python"
(site,) = folder.glob("lib/python*/site-packages")
(site / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
(site / "build.py").write_text(BUILD)
pip = folder / "bin" / "pip"
pip.write_text(PIP.format(python=python))
pip.chmod(0o755)

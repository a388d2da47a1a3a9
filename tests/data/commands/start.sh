#!/bin/bash
set -euo pipefail
source ~/.env
export VLLM_WORKER_MULTIPROC_METHOD=spawn HF_TOKEN="hf_S3CRETs3cretS3CRETs3cret"
export NCCL_DEBUG=INFO
MODEL=org/m
PORT=${PORT:-8000}
ARGS=(
  --max-num-seqs 64   # what fits
  --enforce-eager
)
if [ "$DEBUG" = 1 ]; then
  LEVEL=debug
fi
cat > /tmp/config <<END
vllm serve not-this-one
END
OMP_NUM_THREADS=4 nohup numactl --cpunodebind=0 -C 0-15 \
  vllm serve "$MODEL" \
  --port $PORT --uvicorn-log-level $LEVEL \
  "${ARGS[@]}" --trust-remote-code > vllm.log 2>&1 &
wait

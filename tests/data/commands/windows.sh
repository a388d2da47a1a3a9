vllm serve m \
  --max-num-seqs 8

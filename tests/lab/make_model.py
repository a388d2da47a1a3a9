"""Make a tiny random Llama (3.7 M parameters) with its own tokenizer: a real vLLM serves it without any download.

usage: make_model.py OUT_DIR [HIDDEN_SIZE LAYERS], with the Python that vLLM is installed in; 256 and 4 if not given
"""

import json
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

out = sys.argv[1]
hidden, layers = (int(size) for size in sys.argv[2:4] or (256, 4))
bpe = Tokenizer(models.BPE())
bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
bpe.decoder = decoders.ByteLevel()
standard_library = [str(path) for path in Path(json.__file__).parent.parent.glob("*.py")]
bpe.train(standard_library, trainers.BpeTrainer(vocab_size=2048, special_tokens=["<s>", "</s>", "<pad>"]))
tokenizer = PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
tokenizer.save_pretrained(out)
torch.manual_seed(0)
config = LlamaConfig(
    vocab_size=2048,
    hidden_size=hidden,
    intermediate_size=hidden * 3,
    num_hidden_layers=layers,
    num_attention_heads=hidden // 64,
    num_key_value_heads=hidden // 128,
    max_position_embeddings=4096,
    bos_token_id=0,
    eos_token_id=1,
    pad_token_id=2,
    tie_word_embeddings=True,
)
LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(out)

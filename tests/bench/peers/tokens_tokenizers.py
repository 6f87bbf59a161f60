"""As bench-tokens: `train SIZE`, `train-bpe SIZE` or `encode FOLDER`, the text on standard input."""
import json
import pathlib
import sys
import time

from tokenizers import BertWordPieceTokenizer, ByteLevelBPETokenizer

what, argument = sys.argv[1:]
lines = sys.stdin.read().split("\n")
started = time.perf_counter()
if what == "train":
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(lines, vocab_size=int(argument), show_progress=False)
    tokens = tokenizer.get_vocab_size()
elif what == "train-bpe":
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(lines, vocab_size=int(argument), show_progress=False,
                                  special_tokens=["<|endoftext|>"])
    tokens = tokenizer.get_vocab_size()
else:
    if pathlib.Path(f"{argument}/vocab.txt").exists():
        tokenizer = BertWordPieceTokenizer(f"{argument}/vocab.txt")
    else:
        tokenizer = ByteLevelBPETokenizer(f"{argument}/vocab.json", f"{argument}/merges.txt")
    # The fast one does without the places of tokens in the text.
    encodings = tokenizer._tokenizer.encode_batch_fast(lines, add_special_tokens=False)
    tokens = sum(len(encoding) for encoding in encodings)
print(json.dumps({"tokens": tokens, "seconds": [time.perf_counter() - started]}))

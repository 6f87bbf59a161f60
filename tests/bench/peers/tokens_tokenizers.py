"""As bench-tokens: `train SIZE` or `encode FOLDER`, the text on standard input."""
import json
import sys
import time

from tokenizers import BertWordPieceTokenizer

what, argument = sys.argv[1:]
lines = sys.stdin.read().split("\n")
started = time.perf_counter()
if what == "train":
    tokenizer = BertWordPieceTokenizer()
    tokenizer.train_from_iterator(lines, vocab_size=int(argument), show_progress=False)
    tokens = tokenizer.get_vocab_size()
else:
    tokenizer = BertWordPieceTokenizer(f"{argument}/vocab.txt")
    # The fast one does without the places of tokens in the text.
    encodings = tokenizer._tokenizer.encode_batch_fast(lines, add_special_tokens=False)
    tokens = sum(len(encoding) for encoding in encodings)
print(json.dumps({"tokens": tokens, "seconds": [time.perf_counter() - started]}))

"""BERT, RoBERTa and GPT-2 beside Hugging Face's. `./dev test peers` brings them."""
import json

import pytest

LAYERS, LENGTH = 3, 40
SHAPES = {"plain": (64, 4, 128), "odd": (78, 3, 37)}  # Hidden, heads and ff; odd: they fill no vector.

# Makes a random model and text, runs both programs on them, and prints how far their outputs differ.
BESIDE = """
import json, subprocess, sys
import torch
from safetensors.torch import load_file, save_file
from transformers import (BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, RobertaConfig,
                          RobertaForMaskedLM)
folder, program, name, layers, hidden, heads, ff, length = sys.argv[1:]
layers, hidden, heads, ff, length = map(int, (layers, hidden, heads, ff, length))
torch.manual_seed(1)
words, rows, masked = 997, 3, 4
shape = dict(vocab_size=words, hidden_size=hidden, num_hidden_layers=layers,
             num_attention_heads=heads, intermediate_size=ff, hidden_dropout_prob=0.0,
             attention_probs_dropout_prob=0.0, initializer_range=0.15)
if name == "bert":
    model = BertForMaskedLM(BertConfig(max_position_embeddings=length, **shape))
elif name == "gpt2":
    model = GPT2LMHeadModel(GPT2Config(vocab_size=words, n_positions=length, n_embd=hidden,
                                       n_layer=layers, n_head=heads, n_inner=ff, resid_pdrop=0.0,
                                       embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=0.15))
else:
    model = RobertaForMaskedLM(RobertaConfig(max_position_embeddings=length + 2, type_vocab_size=1,
                                             pad_token_id=1, layer_norm_eps=1e-5, **shape))
with torch.no_grad():
    for parameter in model.parameters():  # Biases and norms too.
        parameter += 0.1 * torch.randn_like(parameter)
parameters = dict(model.named_parameters())
save_file({key: value.detach().clone() for key, value in parameters.items()},
          f"{folder}/model.safetensors")
ids = torch.randint(5, words, (rows, length))
lengths = torch.tensor([length, length - 7, length - 16] if name != "gpt2" else [length] * rows)
attention = (torch.arange(length) < lengths[:, None]).long()
ids[attention == 0] = 1
places = torch.stack([torch.randperm(int(n))[:masked].sort().values for n in lengths])
targets = torch.randint(5, words, (rows, masked))
labels = torch.full_like(ids, -100).scatter(1, places, targets)
if name == "gpt2":  # Which tells each next token.
    places = torch.arange(length - 1).expand(rows, -1).contiguous()
    targets, labels = ids[:, 1:].contiguous(), ids
text = {"ids": ids, "lengths": lengths, "masked": places, "targets": targets}
save_file({key: value.float() for key, value in text.items()}, f"{folder}/text.safetensors")
out = model(input_ids=ids, attention_mask=attention, labels=labels)
out.loss.backward()
subprocess.run([program, name, *map(str, (layers, hidden, heads, ff, length)), folder], check=True)
got = load_file(f"{folder}/outputs.safetensors")
logits = torch.gather(out.logits, 1, places[..., None].expand(-1, -1, words)).reshape(-1, words)
far = {"logits": float((got.pop("logits") - logits).abs().max()),
       "loss": float((got.pop("loss") - out.loss).abs())}
losses = got.pop("losses")
assert set(got) == set(parameters), set(got) ^ set(parameters)
for key, gradient in got.items():
    expected = parameters[key].grad
    far[key] = float((gradient - expected).abs().max() / max(expected.abs().max(), 1e-3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
for step, own in enumerate(losses.tolist()):
    loss = model(input_ids=ids, attention_mask=attention, labels=labels).loss
    far[f"loss of step {step}"] = abs(own - float(loss)) / float(loss)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
assert len(losses) == 10 and losses[-1] < 0.9 * losses[0], losses
print(json.dumps(far))
"""


@pytest.mark.peer
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2"])
def test_logits_gradients_and_ten_steps_losses_are_those_of_transformers(home, peer, name, shape):
    python = peer("transformers") / "bin/python"
    out = home.run([python, "-c", BESIDE, home.folder, home.build.bin / "bert-outputs", name,
                    *map(str, (LAYERS, *SHAPES[shape], LENGTH))], seconds=300,
                   env={"TMPDIR": str(home.folder)}).out  # PyTorch leaves some there.
    far = json.loads(out.splitlines()[-1])
    assert far.pop("logits") < 1e-4
    assert far.pop("loss") < 1e-5
    assert max(far.pop(f"loss of step {step}") for step in range(10)) < 2e-5
    assert {key: value for key, value in far.items() if value > 1e-3} == {}

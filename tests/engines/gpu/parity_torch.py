#!/usr/bin/env python3
"""PyTorch's losses of some steps of plain SGD, on the GPU where it sees one, from weights that are written
to FOLDER/model.safetensors for the trainer to begin with. Each step is of all data, so its order is no matter.
Prints one line of JSON.

usage: parity_torch.py mlp|gpt2 DATA FOLDER STEPS RATE
mlp: DATA in MNIST's form; gpt2: a folder that dtrain-trainer tokenize has written, of one shard.
"""
import json
import pathlib
import struct
import sys

import torch
from torch.nn import functional as F

HIDDEN, LAYERS, HEADS = 64, 2, 2

name, data, folder = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
steps, rate = int(sys.argv[4]), float(sys.argv[5])
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.backends.cuda.matmul.allow_tf32 = False
torch.manual_seed(1)


def read(file, skip, kind):
    return torch.frombuffer(bytearray((data / file).read_bytes()[skip:]), dtype=kind)


def save(tensors):
    header, content = {}, b""
    for key, tensor in tensors.items():
        values = tensor.detach().cpu().contiguous()
        begin, content = len(content), content + bytes(values.view(torch.uint8).flatten().tolist())
        header[key] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [begin, len(content)]}
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + content)


def mlp():
    labels = read("train-labels-idx1-ubyte", 8, torch.uint8).long().to(device)
    images = read("train-images-idx3-ubyte", 16, torch.uint8).view(len(labels), -1).float().to(device) / 255
    shapes = {"hidden.weight": (HIDDEN, images.shape[1]), "hidden.bias": (HIDDEN,),
              "output.weight": (10, HIDDEN), "output.bias": (10,)}

    def loss_of(p):
        x = F.relu(F.linear(images, p["hidden.weight"], p["hidden.bias"]))
        return F.cross_entropy(F.linear(x, p["output.weight"], p["output.bias"]), labels)
    return shapes, loss_of


def gpt2():
    made = json.loads((data / "manifest.json").read_text())
    length = made["length"]
    ids = read("train-00000.tokens", 64, torch.int16).view(-1, length).long().to(device)
    shapes = {"wte.weight": (made["vocabulary"], HIDDEN), "wpe.weight": (length, HIDDEN),
              "ln_f.weight": (HIDDEN,), "ln_f.bias": (HIDDEN,)}
    for i in range(LAYERS):
        shapes |= {f"h.{i}.{part}.weight": shape for part, shape in
                   (("ln_1", (HIDDEN,)), ("ln_2", (HIDDEN,)), ("attn.c_attn", (HIDDEN, 3 * HIDDEN)),
                    ("attn.c_proj", (HIDDEN, HIDDEN)), ("mlp.c_fc", (HIDDEN, 4 * HIDDEN)),
                    ("mlp.c_proj", (4 * HIDDEN, HIDDEN)))}
    shapes |= {key.replace(".weight", ".bias"): shape[-1:] for key, shape in shapes.items() if key.startswith("h.")}

    def loss_of(p):
        def norm(x, part):
            return F.layer_norm(x, (HIDDEN,), p[f"{part}.weight"], p[f"{part}.bias"])

        def linear(x, part):
            return x @ p[f"{part}.weight"] + p[f"{part}.bias"]
        x = p["wte.weight"][ids] + p["wpe.weight"]
        for i in range(LAYERS):
            parts = linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn").chunk(3, -1)
            parts = [part.view(*ids.shape, HEADS, -1).transpose(1, 2) for part in parts]
            y = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(x.shape)
            x = x + linear(y, f"h.{i}.attn.c_proj")
            y = F.gelu(linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh")
            x = x + linear(y, f"h.{i}.mlp.c_proj")
        logits = F.linear(norm(x, "ln_f"), p["wte.weight"])[:, :-1]
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), ids[:, 1:].reshape(-1))
    return shapes, loss_of


shapes, loss_of = {"mlp": mlp, "gpt2": gpt2}[name]()
weights = {key: (0.1 * torch.randn(shape)).to(device).requires_grad_() for key, shape in shapes.items()}
save({("transformer." if name == "gpt2" else "") + key: tensor for key, tensor in weights.items()})
losses = []
for _ in range(steps):
    loss = loss_of(weights)
    losses.append(float(loss.detach()))
    loss.backward()
    with torch.no_grad():
        for tensor in weights.values():
            tensor -= rate * tensor.grad
            tensor.grad = None
print(json.dumps(losses))

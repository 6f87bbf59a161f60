"""What the trainer saves, as tests read it."""
import array
import json
import math
import re
import struct
from pathlib import Path


def content(path):
    """The metadata of a safetensors file, whose form is checked on the way, and name -> bytes of
    every tensor."""
    raw = path.read_bytes()
    length, = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + length])
    body = raw[8 + length:]
    metadata = header.pop("__metadata__", {})
    spans = sorted(entry["data_offsets"] for entry in header.values())
    ends = [0, *(end for _, end in spans)]  # A rank's part may hold nothing.
    assert (not spans or spans[0][0] == 0) and ends[-1] == len(body)
    assert all(before[1] == after[0] for before, after in zip(spans, spans[1:]))
    return metadata, {name: body[slice(*entry["data_offsets"])] for name, entry in header.items()}


def row_major(held, shape, layout):
    """Of a tensor that lies in an arena like that."""
    if layout == "row-major":
        return held
    values = array.array("I", held)
    if layout == "turned":
        rows = [values[row::shape[0]] for row in range(shape[0])]
    else:
        assert layout == "panels of 16"
        size = 16 * math.prod(shape[1:])
        rows = [values[row // 16 * size:(row // 16 + 1) * size][row % 16::16]
                for row in range(shape[0])]
    return b"".join(row.tobytes() for row in rows)


def saved(path):
    """Metadata and name -> bytes of every tensor of a checkpoint: of one file, or of a manifest's
    parts."""
    if path.suffix != ".json":
        return content(path)
    ranges = {}
    for part in json.loads(path.read_text())["parts"]:
        metadata, held = content(path.with_name(part["file"]))
        for name, values in held.items():
            tensor, first, last = re.fullmatch(r"(.+)\[(\d+):(\d+)\]", name).groups()
            assert len(values) == 4 * (int(last) - int(first))
            ranges.setdefault(tensor, []).append((int(first), values))
    found = {}
    for tensor in json.loads(metadata.pop("tensors")):
        held = b""
        for first, values in sorted(ranges.pop(tensor["name"])):
            assert 4 * first == len(held)
            held += values
        found[tensor["name"]] = row_major(held, tensor["shape"], tensor["layout"])
    assert not ranges
    return metadata, found


def tensors(path):
    return saved(path)[1]


def checkpoints(folder):
    """Those of a folder, oldest step first: a safetensors file each, or its parts' manifest."""
    files = list(folder.rglob("*.safetensors"))
    whole = [path for path in files if ".rank-" not in path.name]
    parts = {path.with_name(path.name.split(".")[0] + ".json") for path in files
             if ".rank-" in path.name}
    return sorted([*whole, *filter(Path.exists, parts)], key=lambda path: path.stat().st_mtime_ns)


def last_saved(folder):
    """The step of the last whole checkpoint in a folder; 0: there is none."""
    return max((int(path.stem.removeprefix("step-")) for path in folder.glob("step-*.json")
                if ".rank-" not in path.name), default=0)


def last_of(folder):
    """The last checkpoint in a folder: what it says of the run, and its tensors."""
    return saved(checkpoints(folder)[-1])

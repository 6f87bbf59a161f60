"""Small IDX data sets in MNIST's form that an MLP can learn within a second."""
import gzip
import pathlib
import random
import struct

SIDE, CLASSES = 28, 10
LABEL_TYPES = {0x08: "B", 0x0B: "h", 0x0C: "i"}
FILES = {"train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
         "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")}


def images_file(images):
    return struct.pack(">IIII", 2051, len(images), SIDE, SIDE) + b"".join(images)


def labels_file(labels, code=0x08):
    """`code`: IDX's for bytes, or for whole numbers of 16 (0x0B) or 32 bits (0x0C)."""
    return struct.pack(f">II{len(labels)}{LABEL_TYPES[code]}", code << 8 | 1, len(labels), *labels)


def write(folder, train=1920, test=320, compress=False, seed=1, classes=CLASSES, label_type=0x08):
    """Each class is a pattern of its own; a sample is its pattern with a third of it noise."""
    rng = random.Random(seed)
    patterns = [rng.randbytes(SIDE * SIDE) for _ in range(classes)]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for part, count in (("train", train), ("test", test)):
        labels = [rng.randrange(classes) for _ in range(count)]
        images = []
        for label in labels:
            image = bytearray(patterns[label])
            start = rng.randrange(SIDE * SIDE * 2 // 3)
            image[start:start + SIDE * SIDE // 3] = rng.randbytes(SIDE * SIDE // 3)
            images.append(bytes(image))
        for name, content in zip(FILES[part],
                                 (images_file(images), labels_file(labels, label_type))):
            if compress:
                (folder / f"{name}.gz").write_bytes(gzip.compress(content, 1))
            else:
                (folder / name).write_bytes(content)
    return folder

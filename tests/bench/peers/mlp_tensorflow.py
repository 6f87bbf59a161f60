#!/usr/bin/env python3
"""Keras' training speed on the MLP 784-128(ReLU)-10 with Adam, uint8 images of MNIST's shape.

usage: mlp_tensorflow.py [--batch B] [--steps-per-execution N] [--epochs N]
One process, one thread each for TensorFlow's pools. Prints one JSON line: samples/s of each epoch
after the first.
"""
import argparse
import json
import os
import time

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--steps-per-execution", type=int, default=100)
parser.add_argument("--epochs", type=int, default=4)
args = parser.parse_args()

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)

SAMPLES = 60000
rng = np.random.default_rng(0)
images = rng.integers(0, 256, (SAMPLES, 784), dtype=np.uint8)
labels = rng.integers(0, 10, (SAMPLES,)).astype(np.int32)
data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(SAMPLES).repeat()
data = data.batch(args.batch, drop_remainder=True)
data = data.map(lambda x, y: (tf.cast(x, tf.float32) / 255.0, y)).prefetch(2)

model = tf.keras.Sequential([tf.keras.layers.Input((784,)),
                             tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dense(10)])
model.compile(tf.keras.optimizers.Adam(1e-3),
              tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
              steps_per_execution=args.steps_per_execution)
steps = SAMPLES // args.batch


class Speed(tf.keras.callbacks.Callback):
    rates = []

    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.rates.append(steps * args.batch / (time.perf_counter() - self.start))


model.fit(data, epochs=args.epochs, steps_per_epoch=steps, callbacks=[Speed()], verbose=0)
print(json.dumps({"version": tf.__version__, "samples_per_second": Speed.rates[1:]}), flush=True)

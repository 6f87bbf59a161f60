#!/usr/bin/env python3
"""Keras' training speed on the MLP 784-128(ReLU)-10 with Adam, uint8 images of MNIST's shape.

usage: mlp_tensorflow.py [--strategy NAME] [--batch B] [--epochs N]
  single               one process (the default)
  mirrored             MirroredStrategy over two CPU replicas of one process
  multi-worker         MultiWorkerMirroredStrategy, RING, over two processes that this one starts
  parameter-server     ParameterServerStrategy: a server, two workers and the coordinator, likewise
B is per replica. Each process has one thread for each of TensorFlow's pools. Prints one JSON line:
samples/s over all replicas of each epoch after the first, and whether floats below 2^-126 become
zero, as TensorFlow's threads have it.
"""
import argparse
import json
import os
import socket
import subprocess
import sys
import time

REPLICAS = 2
SAMPLES = 60000

parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="single",
                    choices=["single", "mirrored", "multi-worker", "parameter-server"])
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--epochs", type=int, default=4)
args = parser.parse_args()
# What is fastest; of MirroredStrategy over CPUs, TensorFlow 2.21 can't put several into one.
steps_per_execution = 1 if args.strategy == "mirrored" else 100
is_cluster = args.strategy in ("multi-worker", "parameter-server")

os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
if is_cluster:
    os.environ["TF_USE_LEGACY_KERAS"] = "1"  # Keras 3 can't fit() under these two.


def start_tasks():
    """One process a task; returns the exit status of those that end by themselves."""
    counts = {"worker": REPLICAS}
    if args.strategy == "parameter-server":
        counts |= {"ps": 1, "chief": 1}
    sockets = {(kind, i): socket.create_server(("127.0.0.1", 0))
               for kind, count in counts.items() for i in range(count)}
    cluster = {kind: [f"127.0.0.1:{sockets[kind, i].getsockname()[1]}" for i in range(count)]
               for kind, count in counts.items()}
    for held in sockets.values():
        held.close()
    tasks = {}
    try:
        for kind, index in sockets:
            config = {"cluster": cluster, "task": {"type": kind, "index": index}}
            tasks[kind, index] = subprocess.Popen(
                [sys.executable, *sys.argv], env=dict(os.environ, TF_CONFIG=json.dumps(config)))
        if ("chief", 0) in tasks:  # The servers never end.
            return abs(tasks["chief", 0].wait())
        return max(abs(task.wait()) for task in tasks.values())
    finally:
        for task in tasks.values():
            if task.poll() is None:
                task.kill()
                task.wait()


if is_cluster and "TF_CONFIG" not in os.environ:
    sys.exit(start_tasks())

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)


def make_strategy():
    if args.strategy == "mirrored":
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * REPLICAS)
        return tf.distribute.MirroredStrategy([f"/cpu:{i}" for i in range(REPLICAS)])
    if args.strategy == "multi-worker":
        communication = tf.distribute.experimental
        return tf.distribute.MultiWorkerMirroredStrategy(
            communication_options=communication.CommunicationOptions(
                implementation=communication.CommunicationImplementation.RING))
    if args.strategy == "parameter-server":
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver(rpc_layer="grpc")
        if resolver.task_type in ("worker", "ps"):
            threads = tf.compat.v1.ConfigProto(intra_op_parallelism_threads=1,
                                               inter_op_parallelism_threads=2)
            tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type,
                                 task_index=resolver.task_id, config=threads, protocol="grpc",
                                 start=True).join()
        return tf.distribute.ParameterServerStrategy(resolver)
    return tf.distribute.get_strategy()


strategy = make_strategy()
# Of one step of fit(): under the coordinator that is one worker's batch.
batch = args.batch * (1 if args.strategy == "parameter-server" else strategy.num_replicas_in_sync)

rng = np.random.default_rng(0)
images = rng.integers(0, 256, (SAMPLES, 784), dtype=np.uint8)
labels = rng.integers(0, 10, (SAMPLES,)).astype(np.int32)


def dataset(_context=None):
    data = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(SAMPLES).repeat()
    data = data.batch(batch, drop_remainder=True)
    data = data.map(lambda x, y: (tf.cast(x, tf.float32) / 255.0, y)).prefetch(2)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.with_options(options)


with strategy.scope():
    model = tf.keras.Sequential([tf.keras.layers.Input((784,)),
                                 tf.keras.layers.Dense(128, "relu"), tf.keras.layers.Dense(10)])
    model.compile(tf.keras.optimizers.Adam(1e-3),
                  tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                  steps_per_execution=steps_per_execution)
steps = SAMPLES // batch


class Speed(tf.keras.callbacks.Callback):
    rates = []

    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        self.rates.append(steps * batch / (time.perf_counter() - self.start))


data = dataset()
if args.strategy == "parameter-server":
    data = tf.keras.utils.experimental.DatasetCreator(dataset)
model.fit(data, epochs=args.epochs, steps_per_epoch=steps, callbacks=[Speed()], verbose=0)
task = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {})
if task.get("type") != "worker" or task["index"] == 0:
    # By the threads that train: those of a data set's map are the same pool's.
    tiny = tf.data.Dataset.from_tensors(tf.fill([64], 2.0 ** -126)).map(lambda x: x * 0.25)
    print(json.dumps({"version": tf.__version__, "samples_per_second": Speed.rates[1:],
                      "flushes_denormals": not next(iter(tiny)).numpy().any().item()}),
          flush=True)

#!/usr/bin/python3
"""Open MPI's all-reduce (sum of float32), straight from libmpi, under mpirun.

usage: mpirun -np N allreduce_mpi.py BYTES...
Prints one JSON line a size: seconds, the best of several repetitions and their median.
"""
import ctypes
import json
import statistics
import sys
import time

mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)


def handle(name):
    """Open MPI's predefined handles are addresses of objects that the library exports."""
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))


world, float32, total = map(handle, ("ompi_mpi_comm_world", "ompi_mpi_float", "ompi_mpi_op_sum"))
IN_PLACE = ctypes.c_void_p(1)
mpi.MPI_Init(None, None)
rank = ctypes.c_int()
mpi.MPI_Comm_rank(world, ctypes.byref(rank))
for size in map(int, sys.argv[1:]):
    buffer = (ctypes.c_float * (size // 4))()
    times = []
    for _ in range(200 if size <= 1 << 20 else 20 if size <= 1 << 24 else 8):
        mpi.MPI_Barrier(world)
        start = time.perf_counter()
        mpi.MPI_Allreduce(IN_PLACE, buffer, size // 4, float32, total, world)
        times.append(time.perf_counter() - start)
    if rank.value == 0:
        print(json.dumps({"bytes": size, "best": min(times), "median": statistics.median(times)}),
              flush=True)
mpi.MPI_Finalize()

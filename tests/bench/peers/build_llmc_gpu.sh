#!/bin/sh
# build_llmc_gpu.sh SOURCE VENV CUDA: llm.c's train_gpt2cu, in VENV/bin. VENV has the wheels of cuDNN, NVTX and
# NVML; CUDA is a folder with nvcc and cuBLASLt.
set -eu
source=$1 venv=$2 cuda=$3
wheels=$venv/lib/python3.11/site-packages
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$source/llmc" "$source/train_gpt2.cu" "$work/"
cd "$work"
mkdir include
# What CUDA's compiler alone does not bring, and an argument that is a structure from CUDA 13 on.
cat >include/cuda_profiler_api.h <<'HEADER'
#pragma once
#include <cuda_runtime_api.h>
extern "C" { cudaError_t cudaProfilerStart(); cudaError_t cudaProfilerStop(); }
HEADER
sed -i 's/PreferredLocation, cudaCpuDeviceId/PreferredLocation, cudaMemLocation{cudaMemLocationTypeHost, 0}/' \
  llmc/cuda_utils.cuh
cp -r "$wheels/nvidia/cu13/include/nvtx3" "$wheels/nvidia/nvml_dev/include/nvml.h" include/
set -- --use_fast_math -std=c++17 -O3 --generate-code arch=compute_90,code=sm_90 -DENABLE_BF16 -DENABLE_CUDNN -w \
  -Iinclude "-I$cuda/include" "-I$wheels/include" "-I$wheels/nvidia/cudnn/include"
for file in llmc/cudnn_att.cpp train_gpt2.cu; do
  "$cuda/bin/nvcc" "$@" -c "$file" -o "$(basename "$file").o"
done
# The driver's own library is only where a GPU is.
nm -u train_gpt2.cu.o | sed -n 's/^ *U \(nvml.*\)/int \1(void) { return 0; }/p' >nvml.c
cc -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 nvml.c -o libnvidia-ml.so
"$cuda/bin/nvcc" -cudart static ./*.o -o "$venv/bin/train_gpt2cu" -L. "-L$cuda/lib" -lcublas -lcublasLt -lnvidia-ml \
  -Xlinker "$wheels/nvidia/cudnn/lib/libcudnn.so.9" -Xlinker --allow-shlib-undefined

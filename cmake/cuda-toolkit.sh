#!/bin/sh
# Puts CUDA's compiler, cuBLAS and NCCL together from the Python wheels of cuda-requirements.txt, each
# checked by its hash, where that was not done before, and prints its folder.
# usage: cuda-toolkit.sh [FOLDER]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
folder=${1:-${XDG_CACHE_HOME:-$HOME/.cache}/dtrain/cuda}
root=$folder/nvidia/cu13
recipe=$(cat "$here/cuda-requirements.txt" "$0" | sha256sum)
mkdir -p "$(dirname "$folder")"
exec 9>"$folder.lock"
flock 9
if [ "$(cat "$folder/.complete" 2>/dev/null || :)" != "$recipe" ]; then
  rm -rf "$folder"
  /usr/bin/python3 -m venv "$folder/venv" >&2
  "$folder/venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check --no-deps \
    --no-compile --only-binary=:all: --require-hashes --target "$folder" \
    -r "$here/cuda-requirements.txt" >&2 || {
    rm -rf "$folder"
    echo "cuda-toolkit.sh: no CUDA as $here/cuda-requirements.txt pins it; pip says why above" >&2
    exit 1
  }
  rm -rf "$folder/venv"
  ln -s lib "$root/lib64" # Where nvcc looks for libraries.
  ln -s ../../nccl/include/nccl.h "$root/include/nccl.h"
  ln -s ../../nccl/lib/libnccl.so.2 "$root/lib/libnccl.so.2"
  for library in "$root"/lib/lib*.so.[0-9]*; do # The linker looks for names without a version.
    ln -sf "$(basename "$library")" "${library%%.so.*}.so"
  done
  echo "$recipe" >"$folder/.complete"
fi
echo "$root"

#!/bin/sh
# Brings the peers that `./dev bench` measures beside dtrain into virtual environments of their own.
# usage: set_up.sh [torch|tensorflow|jax|torchx|deepspeed|tokenizers|transformers|accelerate|lightning|llmc|llmc-gpu]...
# (default: all but llmc-gpu, of GBs)
#
# They go to $DTRAIN_PEERS, by default $XDG_CACHE_HOME/dtrain/peers, one folder each; one that is
# complete carries the stamp of its recipe and is left alone. Nothing else on the machine changes.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
peers=${DTRAIN_PEERS:-${XDG_CACHE_HOME:-$HOME/.cache}/dtrain/peers}
python=/usr/bin/python3

pip_into() { # pip_into VENV ARGS...
  venv=$1
  shift
  "$peers/$venv/bin/python" -m pip install --quiet --no-input --disable-pip-version-check "$@"
}

recipe_torch() {
  pip_into torch --no-deps torch==2.15.0
  pip_into torch filelock typing-extensions sympy networkx jinja2 fsspec numpy
  # The wheel links against CUDA's libraries even where it only uses the CPU.
  pip_into torch --no-deps 'nvidia-cuda-runtime<13.3' 'nvidia-cuda-cupti<13.3'
  "$python" "$here/make_cuda_stubs.py" "$peers/torch/lib/python3.11/site-packages"
  "$peers/torch/bin/python" -c 'import torch, torch.distributed'
}

recipe_tensorflow() {
  pip_into tensorflow tensorflow==2.21.0 # It looks for GPUs, too.
  pip_into tensorflow --no-deps tf_keras==2.21.0
}

recipe_jax() { # Without CUDA's own wheels, of GBs: it loads them only for GPUs.
  pip_into jax numpy==2.4.6 scipy==1.17.1 ml_dtypes==0.6.0 opt_einsum==3.4.0
  pip_into jax --no-deps jax==0.10.2 jaxlib==0.10.2 jax-cuda12-plugin==0.10.2 jax-cuda12-pjrt==0.10.2
}

recipe_torchx() {
  pip_into torchx 'torchx[kubernetes]==0.7.0'
}

recipe_deepspeed() {
  on_torch deepspeed
  pip_into deepspeed 'setuptools>=77' wheel py-cpuinfo hjson msgpack ninja psutil einops pydantic \
    tqdm packaging numpy
  DS_BUILD_OPS=0 DS_ACCELERATOR=cpu pip_into deepspeed --no-deps --no-build-isolation \
    deepspeed==0.19.8
  # Its first use compiles for minutes: here, once.
  PATH=$peers/deepspeed/bin:$PATH RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=127.0.0.1 \
    MASTER_PORT=29517 DS_ACCELERATOR=cpu TORCH_EXTENSIONS_DIR=$peers/deepspeed/extensions \
    "$peers/deepspeed/bin/python" -c 'import deepspeed; deepspeed.init_distributed("gloo")' >/dev/null
}

recipe_tokenizers() {
  pip_into tokenizers --no-deps tokenizers==0.23.3
}

on_torch() { # on_torch VENV: shows it torch's packages.
  set_up torch
  echo "$peers/torch/lib/python3.11/site-packages" >"$peers/$1/lib/python3.11/site-packages/torch.pth"
}

recipe_accelerate() {
  on_torch accelerate
  pip_into accelerate numpy packaging psutil pyyaml huggingface_hub safetensors
  pip_into accelerate --no-deps accelerate==1.15.0
}

recipe_lightning() {
  on_torch lightning
  pip_into lightning pyyaml tqdm packaging 'fsspec[http]' typing-extensions
  pip_into lightning --no-deps lightning==2.6.6 pytorch-lightning==2.6.6 \
    torchmetrics==1.9.0 lightning-utilities==0.15.3
}

recipe_transformers() {
  on_torch transformers
  pip_into transformers transformers==4.57.6 safetensors
}

recipe_llmc() { # Its source: gpt2_llmc.py compiles it.
  git clone --quiet https://github.com/karpathy/llm.c "$peers/llmc/source"
  git -C "$peers/llmc/source" checkout --quiet f1e2ace651495b74ae22d45d1723443fd00ecd3a
}

recipe_llmc_gpu() { # Its program for GPUs of compute capability 9.0, with cuDNN's attention.
  set_up llmc
  cuda=${XDG_CACHE_HOME:-$HOME/.cache}/dtrain/cuda/nvidia/cu13 # By ./dev build cuda.
  pip_into llmc-gpu --no-deps nvidia-cudnn-frontend==1.14.0 nvidia-cudnn-cu13==9.28.1.4 \
    nvidia-nvtx==13.5.25 nvidia-nvml-dev-cu12==12.9.79
  "$here/build_llmc_gpu.sh" "$peers/llmc/source" "$peers/llmc-gpu" "$cuda"
}

set_up() { # set_up PEER
  stamp=$peers/$1/.complete
  [ ! -e "$stamp" ] || return 0
  echo "setting up $1 in $peers/$1"
  mkdir -p "$peers"
  "$python" -m venv --clear "$peers/$1"
  "recipe_$(echo "$1" | tr - _)"
  touch "$peers/$1/.complete"
}

[ $# -gt 0 ] || set -- torch tensorflow jax torchx deepspeed tokenizers transformers accelerate lightning llmc
for peer; do
  case $peer in
    torch | tensorflow | jax | torchx | deepspeed | tokenizers | transformers | accelerate | lightning | \
      llmc | llmc-gpu)
      set_up "$peer"
      ;;
    *)
      echo "set_up.sh: no peer '$peer': torch, tensorflow, jax, torchx, deepspeed, tokenizers," \
        "transformers, accelerate, lightning, llmc or llmc-gpu" >&2
      exit 2
      ;;
  esac
done

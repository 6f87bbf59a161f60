"""Builds CUDA's libraries as programs can have them where there is no GPU: its runtime (fake_cudart.c) and its
driver (fake_driver.c), with what else a framework uses of them, and of the libraries that it looks for before
it takes a GPU, which is "not supported"."""
import mmap
import pathlib
import re
import subprocess

HERE = pathlib.Path(__file__).parent
# By the library: what its functions are called, what those return that no source has, and the source.
LIBRARIES = {"libcuda": ("cu[A-Z]", 801, "fake_driver.c"), "libcudart": ("(?:__)?cuda[A-Z]", 801, "fake_cudart.c"),
             "libnvidia-ml": ("nvml[A-Z]", 0, None),
             **{f"lib{name}": (f"{name}[A-Z]", 1, None) for name in
                ("cublas", "cublasLt", "cudnn", "cufft", "cusparse", "cusolver", "cupti", "nccl")}}
# What PyTorch is linked against; its other libraries are stubs already (make_cuda_stubs.py).
LINKED = ("libcudart.so.13", "libcuda.so.1")
# What JAX and TensorFlow load by these names.
LOADED = ("libcuda.so.1", "libcudart.so.12", "libcublas.so.12", "libcublasLt.so.12", "libcudnn.so.9",
          "libcufft.so.11", "libcusparse.so.12", "libcusolver.so.11", "libcupti.so.12", "libnccl.so.2",
          "libnvidia-ml.so.1")


def names_in(files, pattern):
    """Strings of such names, as those of symbols that are linked, or looked up, are."""
    found = set()
    for path in files:
        with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            found.update(name.decode() for name in re.findall(rb"\0(" + pattern.encode() + rb"\w+)(?=\0)", data))
    return found


def build(folder, files, sonames):
    """Into `folder`, for the libraries `files` of a framework."""
    for soname in sonames:
        pattern, result, source = LIBRARIES[soname.partition(".so")[0]]
        own = set(re.findall(r"^\S.*?\b(\w+)\(", (HERE / source).read_text(), re.M)) if source else set()
        rest = folder / f"{soname}.c"
        rest.write_text("".join(f"int {name}(void) {{ return {result}; }}\n"
                                for name in sorted(names_in(files, pattern) - own)))
        versions = folder / f"{soname}.versions"  # The linker knows the runtime's symbols by them.
        versions.write_text(f"{soname} {{ global: *; }};\n" if "cudart" in soname else "{ global: *; };\n")
        subprocess.run(["gcc", "-shared", "-fPIC", "-fno-builtin", "-o", folder / soname, rest,
                        *([HERE / source] if source else []), f"-Wl,-soname,{soname}",
                        f"-Wl,--version-script={versions}"], check=True)

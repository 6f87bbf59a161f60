"""Builds CUDA's runtime, and the driver's library, as programs of PyTorch can have them where there is no
GPU (fake_cudart.c)."""
import pathlib
import re
import subprocess

RUNTIME, DRIVER = "libcudart.so.13", "libcuda.so.1"
SOURCE = pathlib.Path(__file__).with_suffix(".c")


def build(torch, folder):
    """Into `folder`, for the PyTorch in the virtual environment `torch`; what LD_PRELOAD is to say."""
    runtime, driver = set(), set()
    for library in torch.glob("lib/python3*/site-packages/torch/lib/*.so"):
        symbols = subprocess.run(["readelf", "--dyn-syms", "-W", library], capture_output=True, text=True).stdout
        runtime.update(re.findall(rf" UND (\w+)@{re.escape(RUNTIME)}", symbols))
        driver.update(re.findall(r" UND (cu[A-Z]\w+)$", symbols, re.M))
    own = set(re.findall(r"\b(_*cuda\w+)\(", SOURCE.read_text()))
    versions = folder / "versions"
    versions.write_text(f"{RUNTIME} {{ global: cuda*; __cuda*; local: *; }};\n")
    for name, rest, result, more in ((RUNTIME, runtime - own, 801, (SOURCE, f"-Wl,--version-script={versions}")),
                                     (DRIVER, driver, 0, ())):
        source = folder / f"{name}.c"
        source.write_text("".join(f"int {each}(void) {{ return {result}; }}\n" for each in sorted(rest)))
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", folder / name, source, f"-Wl,-soname,{name}", *more],
                       check=True)
    return f"{folder / RUNTIME} {folder / DRIVER}"

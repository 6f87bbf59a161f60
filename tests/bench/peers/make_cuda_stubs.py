#!/usr/bin/env python3
"""Let PyPI's Linux wheel of torch import on a machine without CUDA, and without the 3 GB of CUDA
wheels that it names.

usage: make_cuda_stubs.py SITE_PACKAGES

Writes shared libraries into SITE_PACKAGES/nvidia/cu13/lib, where torch looks for CUDA's, in which
every function that torch links against returns 1, an error. CPU code never calls them. An aid for
measuring the CPU only. Needs gcc and readelf, and the small real wheels nvidia-cuda-runtime and
nvidia-cuda-cupti beside torch.
"""
import collections
import pathlib
import re
import subprocess
import sys

STUBBED = {
    "libcublas", "libcublasLt", "libcudnn", "libnvrtc", "libcufft", "libcusparse", "libcusparseLt",
    "libcusolver", "libnccl", "libnvshmem_host", "libcufile", "libnvJitLink",
}
CUDA_NAME = re.compile(
    r"^(cublas|cudnn|nvrtc|cufft|cusparse|cusolver|p?nccl|nvshmem|cu[Ff]ile|nvJitLink)")


def readelf(option, library):
    return subprocess.run(["readelf", option, "-W", library], check=True, capture_output=True,
                          text=True).stdout.splitlines()


def linkage(libraries):
    """(libraries needed, symbols defined, symbols undefined, library of each symbol version)"""
    needed, defined, undefined, provider = set(), set(), set(), {}
    for library in libraries:
        needed.update(re.findall(r"NEEDED.*\[(.*?)\]", "\n".join(readelf("-d", library))))
        current = None
        for line in readelf("-V", library):
            if match := re.search(r"File: (\S+)", line):
                current = match.group(1)
            elif current and (match := re.search(r"Name: (\S+)\s+Flags", line)):
                provider[match.group(1)] = current
        for line in readelf("--dyn-syms", library):
            fields = line.split()
            if len(fields) >= 8:
                if fields[6] == "UND":
                    undefined.add(fields[7])
                else:
                    defined.add(fields[7].split("@")[0])
    return needed, defined, undefined, provider


def write_stub(folder, soname, symbols_by_version):
    symbols = sorted(set().union(*symbols_by_version.values()))
    source = folder / f"{soname}.c"
    source.write_text("".join(f"__attribute__((weak)) int {s}(void) {{ return 1; }}\n"
                              for s in symbols))
    command = ["gcc", "-shared", "-fPIC", "-o", folder / soname, source, f"-Wl,-soname,{soname}"]
    versions = [version for version in symbols_by_version if version]
    script = folder / f"{soname}.map"
    if versions:
        script.write_text("\n".join(
            f"{v} {{ global: {' '.join(s + ';' for s in sorted(symbols_by_version[v]))} }};"
            for v in versions))
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, check=True)
    source.unlink()
    script.unlink(missing_ok=True)


def main():
    site_packages = pathlib.Path(sys.argv[1])
    folder = site_packages / "nvidia/cu13/lib"
    folder.mkdir(parents=True, exist_ok=True)
    present = {path.name for path in folder.iterdir()}
    needed, defined, undefined, provider = linkage(site_packages.glob("torch/lib/*.so*"))
    for soname in sorted(needed - present):
        if soname.split(".so")[0] not in STUBBED:
            continue
        by_version = collections.defaultdict(set)
        for symbol in undefined:
            name, _, version = symbol.replace("@@", "@").partition("@")
            if name in defined:
                continue
            if version and provider.get(version) == soname:
                by_version[version].add(name)
            elif not version and CUDA_NAME.match(name):
                by_version[""].add(name)
        write_stub(folder, soname, by_version)


if __name__ == "__main__":
    main()

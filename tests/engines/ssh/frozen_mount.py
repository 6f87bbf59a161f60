"""frozen_mount FOLDER: a file system there that takes every request and answers none, as one whose server
hangs: who looks into it cannot even be killed, until this ends."""
import ctypes
import os
import struct
import sys

folder = sys.argv[1].encode()
os.makedirs(folder, exist_ok=True)
device = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={device},rootmode=40000,user_id={os.getuid()},group_id={os.getgid()}"
if libc.mount(b"frozen", folder, b"fuse", 0, options.encode()) != 0:
    sys.exit(f"cannot mount: {os.strerror(ctypes.get_errno())}")
_, _, unique = struct.unpack_from("=IIQ", os.read(device, 65536))
# FUSE_INIT of version 7.12: the largest read ahead, no flags, and the largest write.
init = struct.pack("=IIIIHHI", 7, 12, 0, 0, 0, 0, 4096)
os.write(device, struct.pack("=IiQ", 16 + len(init), 0, unique) + init)
print("frozen", flush=True)
while True:
    os.read(device, 65536)

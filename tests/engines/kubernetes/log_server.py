"""An API server that has one job of many Pods, each with a log to follow, over TLS and HTTP/1.1:
the dearest way for a client, which needs a connection a log.

    log_server.py FOLDER PODS LINES

FOLDER holds tls.crt and tls.key; the port is printed. Every log but the last is LINES short lines
at once; the last trickles lines that are older, so that whoever joins them by time must hold the
others' back."""
import asyncio
import itertools
import json
import ssl
import sys
from urllib.parse import parse_qs, urlsplit

PAGE = 500
FOLDER, PODS, LINES = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
LABELS = {"app.kubernetes.io/managed-by": "dtrain", "dtrain/job": "many", "dtrain/type": ""}
TIME = "2026-01-01T00:00:00Z"
UID = "00000000-0000-0000-0000-%012d"


def metadata(name, number, labels):
    # Fields that a server keeps for itself are most of what it sends.
    managed = {"f:metadata": {"f:labels": {f"f:field-{i}": {"f:inner": {}} for i in range(60)}}}
    return {"name": name, "namespace": "default", "uid": UID % number, "creationTimestamp": TIME,
            "labels": labels, "annotations": {"dtrain/roles": f"worker={PODS}"},
            "managedFields": [{"manager": "kubelet", "operation": "Update", "apiVersion": "v1",
                               "time": TIME, "fieldsType": "FieldsV1", "fieldsV1": managed}]}


JOB = {"metadata": metadata("many-worker", 999999, LABELS),
       "spec": {"completions": PODS, "parallelism": PODS, "template": {"spec": {}}},
       "status": {"active": PODS, "ready": PODS, "startTime": TIME}}


def pod(index):
    labels = {**LABELS, "batch.kubernetes.io/controller-uid": UID % 999999,
              "batch.kubernetes.io/job-completion-index": str(index)}
    mounts = [{"name": f"volume-{i}", "mountPath": f"/mnt/volume-{i}", "readOnly": True}
              for i in range(8)]
    return {
        "metadata": metadata(f"many-worker-{index}", index, labels),
        "spec": {"nodeName": f"node{index % 125}", "containers": [{
            "name": "main", "image": "train:1", "command": ["/bin/sh", "/etc/dtrain/start.sh"],
            "env": [{"name": f"NAME_{i}", "value": "value"} for i in range(8)],
            "volumeMounts": mounts, "resources": {"limits": {"nvidia.com/gpu": "8"}}}],
            "volumes": [{"name": m["name"], "emptyDir": {}} for m in mounts],
            "tolerations": [{"key": f"key-{i}", "operator": "Exists"} for i in range(6)]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "startTime": TIME,
                   "conditions": [{"type": t, "status": "True", "lastTransitionTime": TIME}
                                  for t in ("Initialized", "Ready", "PodScheduled")],
                   "containerStatuses": [{"name": "main", "ready": True, "restartCount": 0,
                                          "image": "train:1", "imageID": "sha256:0",
                                          "state": {"running": {"startedAt": TIME}}}]}}


def listing(items, start, query):
    limit = int(query.get("limit", [PAGE])[0])
    page = items[start:start + limit]
    more = {"continue": str(start + limit)} if start + limit < len(items) else {}
    return {"kind": "List", "metadata": {"resourceVersion": "1", **more}, "items": page}


PODS_ALL = [pod(index) for index in range(PODS)]
LOG = b"".join(b"2026-01-01T00:00:%02d.%09dZ step %d\n" % (i * 50 // LINES, i % 1000000000, i)
               for i in range(LINES))


async def chunk(writer, data):
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))
    await writer.drain()


async def send_log(writer, index):
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    if index < PODS - 1:
        for start in range(0, len(LOG), 8192):
            await chunk(writer, LOG[start:start + 8192])
        await asyncio.sleep(3600)
    for count in itertools.count(1):
        await chunk(writer, b"2026-01-01T00:00:00.%09dZ slow\n" % count)
        await asyncio.sleep(0.02)


async def answer(reader, writer):
    while head := await reader.readuntil(b"\r\n\r\n"):
        url = urlsplit(head.split()[1].decode())
        query = parse_qs(url.query)
        if url.path.endswith("/log"):
            await send_log(writer, int(url.path.split("/")[-2].rpartition("-")[2]))
        if "watch" in query:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            await asyncio.sleep(3600)
        items = {"jobs": [JOB], "pods": PODS_ALL}.get(url.path.split("/")[-1], [])
        body = json.dumps(listing(items, int(query.get("continue", ["0"])[0]), query)).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
        await writer.drain()


async def connected(reader, writer):
    try:
        await answer(reader, writer)
    except (OSError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def main():
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(f"{FOLDER}/tls.crt", f"{FOLDER}/tls.key")
    server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls, backlog=4096,
                                        ssl_handshake_timeout=600)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


asyncio.run(main())

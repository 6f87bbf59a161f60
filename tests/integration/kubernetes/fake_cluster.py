"""An API server of Kubernetes in a few lines: it keeps what is sent and gives it back, and refuses,
answers late or falls silent where a test says so. What needs a controller is for tests/engines."""
import http.server
import json
import re
import threading
import urllib.parse

KINDS = {"Job": "/apis/batch/v1/namespaces/{}/jobs", "Service": "/api/v1/namespaces/{}/services",
         "Pod": "/api/v1/namespaces/{}/pods"}
COLLECTION = re.compile(r"/(?:api|apis)(?:/[^/]+)+?(?:/namespaces/([^/]+))?/([a-z]+)(?:/([^/]+))?$")


def kubeconfig(port, namespace="default"):
    return json.dumps({
        "apiVersion": "v1", "kind": "Config", "current-context": "fake",
        "clusters": [{"name": "fake", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "ann", "user": {"token": "ann's"}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "ann",
                                                  "namespace": namespace}}]})


class CutOff(bytes):
    """An answer of which no more than this comes: then the connection ends."""


class FakeCluster:
    """`objects` by path. `on_request(method, path)` may give (status, body) in the place of the
    store's answer, wait, or raise ConnectionError to fall silent."""

    def __init__(self, home):
        self.objects = {}
        self.requests = []
        self.on_request = lambda method, path: None
        self.uids = 0
        cluster = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self):
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                try:
                    status, answer = cluster.handle(self.command, self.path, body)
                except ConnectionError:
                    self.close_connection = True
                    return
                text = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.close_connection = isinstance(text, CutOff)
                    self.send_header("Content-Length", str(len(text) + self.close_connection))
                    self.end_headers()
                    self.wfile.write(text)
                except OSError:  # The client has left.
                    self.close_connection = True

            do_GET = do_POST = do_PATCH = do_DELETE = answer

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()
        self.home = home
        file = home.folder / "kubeconfig"
        file.write_text(kubeconfig(self.server.server_address[1]))
        self.env = {"KUBECONFIG": str(file)}

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def dtrain(self, *words, **options):
        verb = 2 if words[0] in ("top", "data") else 1
        return self.home.dtrain(*words[:verb], "-b", "kubernetes", *words[verb:], env=self.env,
                                **options)

    def put(self, kind, name, *, owner=None, labels=None, **fields):
        """Makes an object as dtrain does. Gives it back."""
        self.uids += 1
        path = KINDS[kind].format("default")
        metadata = {"name": name, "namespace": "default", "uid": f"uid-{self.uids}",
                    "creationTimestamp": "2026-01-01T00:00:00Z",
                    "labels": {"app.kubernetes.io/managed-by": "dtrain", **(labels or {})}}
        if owner:
            metadata["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": owner["kind"],
                                            "name": owner["metadata"]["name"],
                                            "uid": owner["metadata"]["uid"]}]
        group = path.removeprefix("/apis/") if path.startswith("/apis/") else path.removeprefix("/api/")
        made = {"kind": kind, "apiVersion": group.split("/namespaces")[0], "metadata": metadata,
                **fields}
        self.objects[f"{path}/{name}"] = made
        return made

    def named(self, plural):
        return sorted(path.rsplit("/", 1)[1] for path in self.objects if f"/{plural}/" in path)

    def handle(self, method, target, body):
        url = urllib.parse.urlsplit(target)
        self.requests.append((method, target))
        special = self.on_request(method, url.path)
        if special:
            return special
        found = COLLECTION.match(url.path)
        namespace, plural, name = found.groups() if found else (None, None, None)
        if method == "POST":
            path = f"{url.path}/{body['metadata']['name']}"
            if path in self.objects:
                return status(409, "AlreadyExists", f"{path} already exists")
            self.uids += 1
            body["metadata"]["uid"] = f"uid-{self.uids}"
            body["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
            self.objects[path] = body
            return 201, body
        if method == "GET" and plural and not name:
            query = dict(urllib.parse.parse_qsl(url.query))
            return 200, {"metadata": {"resourceVersion": "1"},
                         "items": [each for path, each in self.objects.items()
                                   if f"/{plural}/" in path and selected(each, query)
                                   and namespace in (None, each["metadata"]["namespace"])]}
        if url.path not in self.objects:
            return status(404, "NotFound", f"{url.path} not found")
        if method == "DELETE":
            uid = self.objects.pop(url.path)["metadata"]["uid"]
            for path, each in list(self.objects.items()):
                if any(owner["uid"] == uid
                       for owner in each["metadata"].get("ownerReferences", [])):
                    del self.objects[path]
            return 200, {"kind": "Status", "status": "Success"}
        if method == "PATCH":
            for part in body.keys() & {"spec", "data", "binaryData"}:
                self.objects[url.path][part].update(body[part])
        return 200, self.objects[url.path]


def status(code, reason, message):
    return code, {"kind": "Status", "status": "Failure", "reason": reason, "message": message,
                  "code": code}


def selected(each, query):
    labels = each["metadata"].get("labels", {})
    for term in filter(None, query.get("labelSelector", "").split(",")):
        key, value = term.split("=", 1)
        if labels.get(key) != value:
            return False
    return True

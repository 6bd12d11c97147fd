# SPDX-License-Identifier: Apache-2.0
"""Nodes behind HTTP, as the API of Kubernetes has them: what the node agent asks of it, and how it refuses. What it
was asked is kept; faults are queued, for all but conditions."""
import copy
import datetime
import json
import re
import ssl
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "sluice/isolated"


def make_node(name, version):
    return {"kind": "Node", "apiVersion": "v1",
            "metadata": {"name": name, "resourceVersion": str(version), "labels": {"kubernetes.io/hostname": name},
                         "annotations": {"of": "others"}},
            "spec": {"podCIDR": "10.0.0.0/24",
                     "taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]},
            "status": {"conditions": [
                {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
                 "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}


class Cluster:
    """Nodes, the token that it takes, faults to come, and what it was asked."""

    def __init__(self, names):
        self.lock = threading.RLock()
        self.version = 100
        self.token = "token-1"
        self.page = 2
        self.counts = True
        self.nodes, self.requests, self.faults = {}, [], []
        for name in names:
            self.version += 1
            self.nodes[name] = make_node(name, self.version)

    def change(self, name, change):
        with self.lock:
            change(self.nodes[name])
            self.touch(name)

    def touch(self, name):
        self.version += 1
        self.nodes[name]["metadata"]["resourceVersion"] = str(self.version)

    def taints(self, name):
        return {taint["key"]: taint for taint in self.nodes[name]["spec"].get("taints") or []}

    def condition(self, name, kind):
        return next((one for one in self.nodes[name]["status"]["conditions"] if one["type"] == kind), None)

    def asked(self, method, part=""):
        with self.lock:
            return [one for one in self.requests if one["method"] == method and part in one["path"]]


def merge(target, patch):
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(target.get(key), dict):
                target[key] = {}
            merge(target[key], value)
        else:
            target[key] = copy.deepcopy(value)


def check_taints(taints):
    for taint in taints or []:
        if not re.fullmatch(r"([a-z0-9.-]{1,253}/)?[A-Za-z0-9._-]{1,63}", taint["key"]):
            return f"invalid key {taint['key']}"
        if not re.fullmatch(r"|[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", taint.get("value", "")):
            return f"invalid value {taint['value']}"
        if taint["effect"] not in ("NoSchedule", "PreferNoSchedule", "NoExecute"):
            return f"invalid effect {taint['effect']}"
    return None


def check_labels(labels):
    for value in (labels or {}).values():
        if not re.fullmatch(r"|[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", value):
            return f"invalid label {value}"
    return None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster = None

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass

    def answer(self, code, body, headers=()):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, code, reason, message, headers=()):
        self.answer(code, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                           "reason": reason, "code": code}, headers)

    def fault(self):
        """True: the request is dealt with."""
        with self.cluster.lock:
            fault = next((one for one in self.cluster.faults if one["method"] == self.command and one.get("part", "") in self.path
                          and not self.path.endswith("/status")), None)
            if fault is None:
                return False
            fault["times"] = fault.get("times", 1) - 1
            if fault["times"] <= 0:
                self.cluster.faults.remove(fault)
        if "do" in fault:  # and then as usual
            fault["do"]()
            return False
        if "after" in fault:  # it is done, and nobody hears of it
            self.quiet = True
            self.serve()
            time.sleep(fault["after"])
            self.close_connection = True
            return True
        if "slow" in fault:
            time.sleep(fault["slow"])
            return False
        if "hang" in fault:
            time.sleep(fault["hang"])
            self.close_connection = True
        elif "raw" in fault:
            self.answer(200, fault["raw"])
        elif fault["code"] == 429:
            self.refuse(429, "TooManyRequests", "the server has received too many requests", [("Retry-After", fault["wait"])])
        else:
            self.refuse(fault["code"], "Fault", fault.get("message", "etcdserver: request timed out"))
        return True

    def handle_one(self):
        length = int(self.headers.get("Content-Length") or 0)
        self.body = self.rfile.read(length)
        self.quiet = False
        with self.cluster.lock:
            self.cluster.requests.append({"method": self.command, "path": self.path, "body": self.body.decode(), "time": time.monotonic(),
                                          "headers": dict(self.headers)})
        if self.headers.get("Authorization") != f"Bearer {self.cluster.token}":
            self.refuse(401, "Unauthorized", "Unauthorized")
        elif not self.fault():
            self.serve()

    do_GET = do_PATCH = handle_one

    def reply(self, body):
        if not self.quiet:
            self.answer(200, body)

    def serve(self):
        url = urllib.parse.urlsplit(self.path)
        parts = url.path.strip("/").split("/")
        if parts[:3] != ["api", "v1", "nodes"] or len(parts) > 5:
            return self.refuse(404, "NotFound", "the server could not find the requested resource")
        with self.cluster.lock:
            if len(parts) == 3:
                return self.list(urllib.parse.parse_qs(url.query))
            node = self.cluster.nodes.get(parts[3])
            if node is None:
                return self.refuse(404, "NotFound", f'nodes "{parts[3]}" not found')
            if self.command == "GET":
                return self.reply(node)
            if len(parts) == 5 and parts[4] == "status":
                return self.patch_status(node)
            return self.patch_node(node)

    def list(self, query):
        if "PartialObjectMetadataList" not in self.headers.get("Accept", ""):
            return self.refuse(406, "NotAcceptable", "this test wants metadata alone")
        label, field = query.get("labelSelector", [""])[0], query.get("fieldSelector", [""])[0]
        nodes = [self.cluster.nodes[name] for name in sorted(self.cluster.nodes)]
        if label == KEY:
            nodes = [node for node in nodes if KEY in node["metadata"]["labels"]]
        elif label == "!" + KEY:
            nodes = [node for node in nodes if KEY not in node["metadata"]["labels"]]
        elif label:
            return self.refuse(400, "BadRequest", f"unable to parse {label}")
        if field == "spec.unschedulable=true":
            nodes = [node for node in nodes if node["spec"].get("unschedulable")]
        elif field:
            return self.refuse(400, "BadRequest", f'"{field}" is not a known field selector')
        first = int(query.get("continue", ["0"])[0].removeprefix("page=&"))
        limit = min(int(query.get("limit", ["500"])[0]), self.cluster.page)
        rest = len(nodes) - first - limit
        metadata = {"resourceVersion": str(self.cluster.version)}
        if rest > 0:
            metadata["continue"] = f"page=&{first + limit}"
            if not label and not field and self.cluster.counts:
                metadata["remainingItemCount"] = rest
        return self.reply({"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": metadata,
                           "items": [{"metadata": node["metadata"]} for node in nodes[first:first + limit]]})

    def patch_node(self, node):
        if self.headers["Content-Type"] != "application/merge-patch+json":
            return self.refuse(415, "UnsupportedMediaType", self.headers["Content-Type"])
        patch = json.loads(self.body)
        version = patch.get("metadata", {}).get("resourceVersion")
        if version is not None and version != node["metadata"]["resourceVersion"]:
            return self.refuse(409, "Conflict", f'Operation cannot be fulfilled on nodes "{node["metadata"]["name"]}": the object has been '
                               "modified; please apply your changes to the latest version and try again")
        patch.pop("status", None)
        new = copy.deepcopy(node)
        merge(new, patch)
        wrong = check_taints(new["spec"].get("taints")) or check_labels(new["metadata"]["labels"])
        if wrong:
            return self.refuse(422, "Invalid", wrong)
        node.clear()
        node.update(new)
        self.cluster.touch(node["metadata"]["name"])
        return self.reply(node)

    def patch_status(self, node):
        if self.headers["Content-Type"] != "application/strategic-merge-patch+json":
            return self.refuse(415, "UnsupportedMediaType", self.headers["Content-Type"])
        for one in json.loads(self.body)["status"]["conditions"]:
            for key in ("lastHeartbeatTime", "lastTransitionTime"):
                datetime.datetime.strptime(one[key], "%Y-%m-%dT%H:%M:%SZ")
            has = self.cluster.condition(node["metadata"]["name"], one["type"])
            if has is None:
                node["status"]["conditions"].append(one)
            else:
                has.update(one)
        self.cluster.touch(node["metadata"]["name"])
        return self.reply(node)


class Server:
    """Listens on a port of the kernel's choice; certificate: with TLS."""

    def __init__(self, cluster, certificate=None):
        handler = type("OfCluster", (Handler,), {"cluster": cluster})
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.http.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.http.socket = context.wrap_socket(self.http.socket, server_side=True)
        self.http.handle_error = lambda *_: None
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def end(self):
        self.http.shutdown()
        self.http.server_close()

"""A server that speaks the few endpoints of the Hugging Face Hub that pushing and
pulling use."""

import base64
import hashlib
import json
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

TOKEN = "hf_secret"
COMMIT = "0" * 40


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.silent_at in self.path:
            self.server.over.wait()
        else:
            self.take(body)

    def take(self, body):
        repo = "/".join(self.path.split("/")[3:5])
        if self.path == "/api/validate-yaml":
            assert json.loads(body)["content"].startswith("---\n")
            return self.answer({"errors": [], "warnings": []})
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            return self.answer({"error": "Invalid credentials"}, 401)
        if self.path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked['organization']}/{asked['name']}"
            self.server.private[repo] = asked.get("visibility") == "private"
            self.server.files.setdefault(repo, {})
            return self.answer({"url": f"{self.server.url}/{repo}", "name": repo})
        if "/preupload/" in self.path:
            files = [
                {
                    "path": each["path"],
                    "uploadMode": self.mode(each["path"]),
                    "shouldIgnore": False,
                }
                for each in json.loads(body)["files"]
            ]
            return self.answer({"files": files})
        if self.path.endswith("/objects/batch"):
            objects = [
                {
                    **each,
                    "actions": {
                        "upload": {"href": f"{self.server.url}/lfs/{each['oid']}"}
                    },
                }
                for each in json.loads(body)["objects"]
            ]
            return self.answer({"transfer": "basic", "objects": objects})
        assert "/commit/" in self.path
        for line in body.splitlines():
            operation = json.loads(line)
            value = operation["value"]
            if operation["key"] == "file":
                self.server.files[repo][value["path"]] = base64.b64decode(
                    value["content"]
                )
            elif operation["key"] == "lfsFile":
                self.server.files[repo][value["path"]] = self.server.objects[
                    value["oid"]
                ]
        url = f"{self.server.url}/{repo}/commit/{COMMIT}"
        return self.answer({"commitUrl": url, "commitOid": COMMIT})

    def do_PUT(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        assert hashlib.sha256(content).hexdigest() == self.path.rpartition("/")[2]
        self.server.objects[self.path.rpartition("/")[2]] = content
        self.answer({})

    def do_GET(self):
        repo, _, file = self.path[1:].partition("/resolve/main/")
        found = self.server.files.get(repo)
        if found is None or file not in found:
            missing = "RepoNotFound" if found is None else "EntryNotFound"
            self.answer({}, 404, {"X-Error-Code": missing})
            return
        self.send_response(200)
        length = self.server.claimed or len(found[file])
        for key, value in {
            "Content-Length": length,
            "ETag": f'"{hashlib.sha256(found[file]).hexdigest()}"',
            "X-Repo-Commit": COMMIT,
        }.items():
            self.send_header(key, str(value))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(found[file])

    def do_HEAD(self):
        self.do_GET()

    def mode(self, path):
        return "lfs" if path.endswith(".zip") else "regular"

    def answer(self, content, code=200, headers=None):
        body = b"" if self.command == "HEAD" else json.dumps(content).encode()
        self.answer_with(body, code, headers)

    def answer_with(self, body, code=200, headers=None):
        self.send_response(code)
        for key, value in {**(headers or {}), "Content-Length": len(body)}.items():
            self.send_header(key, str(value))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@contextmanager
def hub_server():
    """A running server; `files` has what it holds, by repository and path. It does not
    answer to what contains `silent_at`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.url = f"http://127.0.0.1:{server.server_port}"
        server.files, server.objects, server.private, server.claimed = {}, {}, {}, None
        server.silent_at, server.over = "no path", Event()
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.over.set()
            server.shutdown()
            thread.join()

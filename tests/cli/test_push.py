"""`tokenpo push` and `--push`: the real client of the hub, and a local server that answers as the hub does."""

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub.constants as hub_settings
import pytest

from tokenpo.cli.main import main


class Hub(BaseHTTPRequestHandler):
    """Keeps repositories and files; large files come first, by their hash (LFS), and then the commit names them."""

    server: "Server"

    def log_message(self, *args):
        pass

    def answer(self, content, status=200):
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.large[hashlib.sha256(content).hexdigest()] = content
        self.answer({})

    def do_POST(self):
        lines = self.rfile.read(int(self.headers["Content-Length"])).splitlines()
        asked = json.loads(lines[0])
        if self.headers["Authorization"] != "Bearer secret":
            return self.answer({"error": "who are you?"}, 401)
        if self.path == "/api/repos/create":
            return self.create(f"{asked['organization']}/{asked['name']}", asked["visibility"])
        if self.path == "/api/validate-yaml":
            return self.answer({"errors": [], "warnings": []})
        if self.path.endswith("/preupload/main"):
            kinds = [
                (file["path"], "lfs" if file["path"].endswith(".safetensors") else "regular") for file in asked["files"]
            ]
            return self.answer({"files": [{"path": p, "uploadMode": kind, "shouldIgnore": False} for p, kind in kinds]})
        if self.path.endswith(".git/info/lfs/objects/batch"):
            upload = {"upload": {"href": f"{self.server.address}/large"}}
            return self.answer({"transfer": "basic", "objects": [{**x, "actions": upload} for x in asked["objects"]]})
        name = self.path.removeprefix("/api/models/").removesuffix("/commit/main")
        for kind, value in ((line["key"], line["value"]) for line in map(json.loads, lines[1:])):
            content = base64.b64decode(value["content"]) if kind == "file" else self.server.large[value["oid"]]
            self.server.repositories[name]["files"][value["path"]] = content
        url = f"{self.server.address}/{name}"
        return self.answer({"commitUrl": f"{url}/commit/0", "commitOid": "0", "hookOutput": "", "success": True})

    def create(self, name, visibility):
        if name == "other/taken":
            return self.answer({"error": "you may not write here"}, 403)
        known = name in self.server.repositories
        self.server.repositories.setdefault(name, {"visibility": visibility, "files": {}})
        return self.answer({"url": f"{self.server.address}/{name}"}, 409 if known else 200)


class Server(ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Hub)
        self.address = f"http://127.0.0.1:{self.server_address[1]}"
        self.repositories: dict[str, dict] = {}
        self.large: dict[str, bytes] = {}


@pytest.fixture
def hub(monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setattr(hub_settings, "HF_HUB_DISABLE_XET", True)
    with Server() as server:
        monkeypatch.setattr(hub_settings, "ENDPOINT", server.address)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.repositories
        server.shutdown()


@pytest.mark.parametrize("visibility", ["private", "public"])
def test_push_uploads_the_files_of_a_model_to_a_private_repository(tmp_path, hub, visibility):
    files = {"config.json": b"{}", "README.md": b"---\nlicense: mit\n---\n", "model.safetensors": bytes(range(256)) * 9}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    flags = ["--public"] * (visibility == "public")
    assert main(["push", str(tmp_path), "me/sums", *flags]) == 0
    assert hub == {"me/sums": {"visibility": visibility, "files": files}}
    (tmp_path / "config.json").write_text("[]")
    assert main(["push", str(tmp_path), "me/sums"]) == 0
    assert hub == {"me/sums": {"visibility": visibility, "files": files | {"config.json": b"[]"}}}


@pytest.mark.parametrize(
    ("name", "token", "why"),
    [
        ("other/taken", "secret", "you may not write here"),
        ("me/sums", "wrong", "401"),
        ("me/offline", "secret", "Connection refused"),
        ("a/b/c", "secret", "a/b/c"),
    ],
)
def test_push_says_why_the_hub_refuses(tmp_path, hub, monkeypatch, capsys, name, token, why):
    monkeypatch.setenv("HF_TOKEN", token)
    (tmp_path / "config.json").write_text("{}")
    if name == "me/offline":
        monkeypatch.setattr(hub_settings, "ENDPOINT", "http://127.0.0.1:9")
    assert main(["push", str(tmp_path), name]) == 2
    said = capsys.readouterr().err
    assert why in said and "hf auth login" in said
    assert main(["train", "quickstart", "--push", name, "--out", str(tmp_path / "run")]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "run").exists() and hub == {}


def test_push_needs_a_model(tmp_path, hub, capsys):
    (tmp_path / "secrets.txt").write_text("mine")
    for place in ("owner/model", str(tmp_path)):
        assert main(["push", place, "me/sums"]) == 2
        assert f"{place} is not the directory of a model" in capsys.readouterr().err
    assert hub == {}


def test_train_uploads_the_model_that_it_made(tmp_path, hub):
    settings = ["train.steps=1", "rollout.prompts=1", "rollout.group_size=2", "evaluate.problems=0"]
    sets = [word for setting in settings for word in ("--set", setting)]
    assert main(["train", "quickstart", "--no-report", "--push", "me/sums", "--out", str(tmp_path / "run"), *sets]) == 0
    model = {file.name: file.read_bytes() for file in (tmp_path / "run" / "model").iterdir()}
    assert hub == {"me/sums": {"visibility": "private", "files": model}} and {"README.md", "model.safetensors"} <= set(
        model
    )

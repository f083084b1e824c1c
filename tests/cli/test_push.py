import httpx
import huggingface_hub
import pytest

from tokenpo.cli.main import main


class Hub:
    """Keeps what is uploaded, as the hub would."""

    repositories: dict[str, dict]

    def create_repo(self, name, *, private, exist_ok):
        if name == "other/taken":
            raise OSError("403 Forbidden")
        if name == "me/offline":
            raise httpx.ConnectError("Name or service not known")
        self.repositories.setdefault(name, {"private": private, "files": {}})

    def upload_folder(self, *, repo_id, folder_path, commit_message):
        for file in folder_path.iterdir():
            self.repositories[repo_id]["files"][file.name] = file.read_bytes()
        return f"hub/{repo_id}"


@pytest.fixture
def hub(monkeypatch):
    Hub.repositories = {}
    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    return Hub.repositories


@pytest.mark.parametrize("public", [False, True])
def test_push_uploads_the_files_of_a_model_to_a_private_repository(tmp_path, hub, public):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "README.md").write_text("card")
    assert main(["push", str(tmp_path), "me/sums", *["--public"] * public]) == 0
    assert hub == {"me/sums": {"private": not public, "files": {"config.json": b"{}", "README.md": b"card"}}}


@pytest.mark.parametrize(
    ("name", "why"), [("other/taken", "403 Forbidden"), ("me/offline", "Name or service not known")]
)
def test_push_says_why_the_hub_refuses(tmp_path, hub, capsys, name, why):
    assert main(["push", str(tmp_path), name]) == 2
    assert why in capsys.readouterr().err
    assert main(["train", "quickstart", "--push", name, "--out", str(tmp_path / "run")]) == 2
    assert why in capsys.readouterr().err
    assert not (tmp_path / "run").exists() and hub == {}


def test_push_needs_a_directory(hub, capsys):
    assert main(["push", "owner/model", "me/sums"]) == 2
    assert "not a directory" in capsys.readouterr().err
    assert hub == {}


def test_train_uploads_the_model_that_it_made(tmp_path, hub):
    settings = ["train.steps=1", "rollout.prompts=1", "rollout.group_size=2", "evaluate.problems=0"]
    sets = [word for setting in settings for word in ("--set", setting)]
    assert main(["train", "quickstart", "--no-report", "--push", "me/sums", "--out", str(tmp_path / "run"), *sets]) == 0
    model = {file.name: file.read_bytes() for file in (tmp_path / "run" / "model").iterdir()}
    assert hub == {"me/sums": {"private": True, "files": model}} and "README.md" in model

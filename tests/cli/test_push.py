import huggingface_hub
import pytest

from tokenpo.cli.main import main


class Hub:
    """Keeps what is uploaded, as the hub would."""

    repositories: dict[str, dict]

    def create_repo(self, name, *, private, exist_ok):
        if name == "other/taken":
            raise OSError("403 Forbidden")
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


def test_push_says_why_the_hub_refuses(tmp_path, hub, capsys):
    assert main(["push", str(tmp_path), "other/taken"]) == 2
    assert "403 Forbidden" in capsys.readouterr().err
    assert hub == {}


def test_push_needs_a_directory(hub, capsys):
    assert main(["push", "owner/model", "me/sums"]) == 2
    assert "not a directory" in capsys.readouterr().err
    assert hub == {}

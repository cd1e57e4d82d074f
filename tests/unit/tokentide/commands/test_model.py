import pytest

from shared.errors import ModelUnusable
from tokentide.commands import model
from tokentide.commands.model import model_folder, name_packaged_model


def test_a_missing_folder_and_one_without_a_model_are_told_apart(tmp_path):
    with pytest.raises(ModelUnusable, match="no such folder"):
        model_folder(str(tmp_path / "absent"))
    with pytest.raises(ModelUnusable, match=r"no config\.json"):
        model_folder(str(tmp_path))


def test_a_worker_s_packaged_model_is_named_by_its_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(model, "packaged_model_dir", lambda progress: tmp_path)

    assert name_packaged_model(["--model", "packaged", "--port", "0"]) == [
        "--model",
        str(tmp_path),
        "--port",
        "0",
    ]
    assert name_packaged_model(["--model=packaged"]) == [f"--model={tmp_path}"]
    assert name_packaged_model(["--model", "/models/other"]) == ["--model", "/models/other"]
    assert name_packaged_model(["--name", "packaged"]) == ["--name", "packaged"]

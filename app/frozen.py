"""What a bundle must set right before anything else runs; in a checkout none of it is needed.

Standard streams that are not there, the library path that the bundle's starter bent for itself, certificates, and the caches of libraries
that would otherwise write beside the program. Imports little, so that it can run before everything.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping
from pathlib import Path

LIBRARY_PATHS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LIBPATH")
CACHES = {"NUMBA_CACHE_DIR": "numba", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}


def make_ready(environ: MutableMapping[str, str] = os.environ) -> None:
    """All of it, in a bundle."""
    give_streams()
    restore_library_path(environ)
    find_certificates(environ)
    keep_caches_at_home(environ)
    environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def give_streams() -> None:
    """A windowed program on Windows has no standard streams, and whatever prints would fail. Never closed: they live as long as we."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)


def restore_library_path(environ: MutableMapping[str, str]) -> None:
    """PyInstaller's starter points the loader at our libraries; programs that we open (a browser, a file manager) want their own.

    Our process read the variable when it started, and our libraries find each other by their own run path.
    """
    for name in LIBRARY_PATHS:
        original = environ.pop(f"{name}_ORIG", None)
        if original is not None:
            environ[name] = original
        elif name in environ and _ours(environ[name]):
            del environ[name]


def _ours(value: str) -> bool:
    inside = getattr(sys, "_MEIPASS", None)
    return inside is not None and all(part.startswith(str(inside)) for part in value.split(os.pathsep) if part)


def find_certificates(environ: MutableMapping[str, str]) -> None:
    """Our OpenSSL looks where it was built to look, which is another place on other distributions: then certifi's list serves."""
    import ssl

    places = ssl.get_default_verify_paths()
    there = any(path and Path(path).exists() for path in (places.cafile, places.capath))
    if there or "SSL_CERT_FILE" in environ:
        return
    try:
        import certifi
    except ImportError:
        return
    environ["SSL_CERT_FILE"] = certifi.where()


def keep_caches_at_home(environ: MutableMapping[str, str]) -> None:
    """Compilers' caches belong into the user's cache folder: the place of the program may be read-only."""
    import platformdirs

    home = environ.get("OMNIBUS_HOME", "").strip()
    cache = Path(home) / "cache" if home else platformdirs.user_cache_path("omnibus", appauthor=False)
    for name, folder in CACHES.items():
        environ.setdefault(name, str(cache / folder))

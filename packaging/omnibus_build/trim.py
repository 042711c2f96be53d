"""What goes into the bundle and what is left out on purpose, each with its reason and its saving.

Pure lists and functions over file names; the spec asks them for each file that PyInstaller found.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import sys
from importlib import metadata
from pathlib import Path

# Imported by name, where an analysis of the sources cannot see it.
HIDDEN = ("accelerate", "gguf", "hf_xet", "qasync", "PySide6.QtSvg", "uvicorn.protocols.http.h11_impl", "uvicorn.loops.asyncio")

# Never imported by the lanes. torch.testing, torch.distributed, torch._dynamo and torch._inductor are not here: transformers and
# accelerate import them at module level in places.
_EXCLUDED = (
    "IPython",
    "_pytest",
    "hypothesis",
    "matplotlib",
    "mypy",
    "openai",
    "pandas",
    "PIL",
    "pip",
    "pydantic",  # transformers' and the hub's, for servers of theirs
    "pytest",
    "rich",
    "scipy",
    "setuptools",
    "shellingham",
    "sklearn",
    "tensorboard",
    "tensorflow",
    "tkinter",
    "typer",
)
# Only torch.compile needs it, and our lanes record their steps themselves; libtriton alone is 462 MB.
_EXCLUDED_CUDA = ("triton",)

# (pattern of the place inside the bundle, why it may go)
LEFT_OUT: tuple[tuple[str, str], ...] = (
    ("torch/test/*", "torch's own test programs, 83 MB"),
    ("torch/bin/*test*", "the same, 45 MB with protoc"),
    ("torch/bin/protoc*", "a compiler for protocol buffers"),
    ("torch/include/*", "headers for extensions, 62 MB"),
    ("torch/share/*", "CMake files for extensions"),
    ("torch/lib/*_test.*", "torch's own test programs"),
    ("torch/lib/libbackend_with_compiler*", "the same"),
    ("torch/lib/libaoti_custom_ops*", "the same"),
    ("torch/lib/*.a", "static libraries, for linking extensions"),
    ("torch/lib/*.lib", "import libraries, for linking extensions"),
    ("PySide6/Qt/translations/*", "Qt's own words in languages we do not speak"),
    ("PySide6/translations/*", "the same on Windows"),
    ("PySide6/Qt/qml/*", "Qt Quick; the window is made of widgets"),
    ("PySide6/Qt/metatypes/*", "for building against Qt"),
    ("PySide6/Qt/plugins/qmltooling/*", "Qt Quick"),
    ("PySide6/Qt/plugins/sqldrivers/*", "chats lie in apsw's SQLite"),
    ("*/platforms/libqvnc*", "a screen over the network"),
    ("*/platforms/libqlinuxfb*", "a screen without a window system"),
    ("*/platforms/libqeglfs*", "the same"),
    ("*/platforms/libqvkkhrdisplay*", "the same"),
    ("*/egldeviceintegrations/*", "the same"),
    ("*/platformthemes/libqgtk3*", "drags GTK and its libraries in; the app has a theme of its own"),
    ("*/libQt6Quick*", "Qt Quick"),
    ("*/libQt6Qml*", "Qt Quick"),
    ("*/libQt6Designer*", "a tool"),
    ("*/libQt6Pdf*", "not used"),
    ("*/libQt6VirtualKeyboard*", "needs Qt Quick"),
    ("*/platforminputcontexts/libqtvirtualkeyboard*", "the same"),
    ("*/imageformats/libqpdf*", "not used"),
    ("*.dist-info/RECORD", "for uninstalling with pip"),
    ("*.dist-info/licenses/*", "all licences are among the papers"),
    ("*.dist-info/direct_url.json", "tells where the build machine had it from"),
    ("*/libgtk-3*", "see libqgtk3"),
    ("*/libgdk-3*", "see libqgtk3"),
)

# Torch raises at import where this is missing.
KEPT = ("torch/bin/torch_shm_manager*",)


def modules(root: Path, package: str) -> list[str]:
    """Every module of one of our packages, by its files: some folders are no packages of their own, which PyInstaller steps over."""
    found = []
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


# Their data comes by PyInstaller's own hooks, which know what they need; by their lists of files it would be hundreds of megabytes.
HOOKED = frozenset({"torch", "pyside6-essentials", "shiboken6", "transformers", "numpy"})
# Files of a package that are no data.
CODE = frozenset(
    {
        "", ".a", ".c", ".cc", ".cpp", ".cu", ".dll", ".dylib", ".exe", ".h",
        ".hpp", ".lib", ".pxd", ".py", ".pyc", ".pyd", ".pyi", ".pyx", ".so",
    }
)  # fmt: skip


def data_of(name: str) -> list[tuple[str, str]]:
    """(file, folder in the bundle) of what a distribution reads beside its code: fonts, tables, templates. No analysis of its sources
    sees them, and without them it fails when they are needed, not when the bundle is built.
    """
    found = []
    for file in metadata.files(name) or []:
        package = file.parts[0]
        ours = len(file.parts) > 1 and package != ".." and not package.endswith((".dist-info", ".data")) and "tests" not in file.parts
        if ours and file.suffix.lower() not in CODE:
            found.append((str(file.locate()), Path(*file.parts[:-1]).as_posix()))
    return [(path, folder) for path, folder in found if Path(path).is_file()]


def excludes(flavour: str) -> list[str]:
    """Modules that PyInstaller must not follow."""
    return [*_EXCLUDED, *(_EXCLUDED_CUDA if flavour == "cuda" else ())]


def keep(place: str, flavour: str) -> bool:
    """Whether a file belongs into the bundle. `place` is where it would lie, with either kind of slash."""
    return reason(place, flavour) is None


def reason(place: str, flavour: str) -> str | None:
    """Why a file is left out, or None."""
    plain = place.replace("\\", "/")
    if any(fnmatch.fnmatchcase(plain, pattern) for pattern in KEPT):
        return None
    for pattern, why in LEFT_OUT:
        if fnmatch.fnmatchcase(plain, pattern):
            return why
    if flavour == "cpu" and (plain.startswith(("nvidia/", "triton/")) or "/libcudart" in plain):
        return "belongs to the cuda flavour"
    return None


def extra_binaries(flavour: str) -> list[tuple[str, str]]:
    """Libraries that are opened by name at run time, which an analysis of dependencies cannot see."""
    if flavour != "cuda":
        return []
    found = []
    for folder in sys.path:
        # NVRTC opens its builtins itself.
        for pattern in ("nvidia/*/lib/libnvrtc-builtins*", "nvidia/*/bin/**/nvrtc-builtins*.dll"):
            for path in glob.glob(os.path.join(folder, pattern), recursive=True):
                found.append((path, Path(path).parent.relative_to(folder).as_posix()))
    return found

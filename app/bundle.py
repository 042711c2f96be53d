"""`omnibus doctor --bundle FILE.zip`: what somebody who helps needs to know, in one file that a person can read before giving it away.

Owns the choice of what goes in: the report, the list of models, the logs with everything taken out that could be a person's words. Never
opens the store of chats, the settings or a keyring. Needs the standard library alone, like the doctor.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

README = """What is in here

report.txt, report.json   what `omnibus doctor` says of this machine and this installation
logs/                     the program's log files, without what could be words of yours: texts in quotes and the messages of foreign errors
                          are left out, and your home folder is written as ~

No chats, no settings, no keys. It is plain text: look before you give it away.
"""
MOST_LOG = 512 << 10  # bytes of each log, from its end
LOG_NAMES = ("omnibus.log", "omnibus.log.1", "crash.log", "crash-before.log")

_ENTRY = re.compile(r"^(\d{4}-\d\d-\d\d [\d:,]+ [A-Z]+ \S+ )([\w.]+): (.*)$")
_RAISED = re.compile(r"^([\w.]*(?:Error|Exception|Warning|Interrupt|Exit|Group|[A-Z]\w+)): .*$")
_QUOTED = re.compile(r"“[^”]*”|\"[^\"]*\"|'[^']*'")
_FRAME = re.compile(r'^ *File "([^"]*)", line \d+')
_OURS = ("app", "engine", "omnibus")
_KEPT = (
    "Traceback (most recent call last):",
    "During handling",
    "The above exception",
    "Thread 0x",
    "Current thread",
    "Fatal Python error",
)


def write_bundle(target: Path, report: dict[str, Any], text: str, logs: Path) -> list[str]:
    """Write the file in one stroke; returns the names of what is in it. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.part")
    parts = {"README.txt": README, "report.txt": at_home(text), "report.json": at_home(json.dumps(report, indent=2))}
    for name in LOG_NAMES:
        if (logs / name).is_file():
            parts[f"logs/{name}"] = "\n".join(without_words(_end_of(logs / name)))
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as bundle:
            for name, content in parts.items():
                bundle.writestr(name, content)
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return list(parts)


def log_folder() -> Path | None:
    """Where the window's log lies; None where that cannot be told."""
    try:
        import platformdirs
    except ImportError:
        return None
    return Path(platformdirs.user_log_dir("omnibus"))


def at_home(text: str) -> str:
    """The person's home folder as ~, in a plain and in a JSON form."""
    home = str(Path.home())
    if len(home) < 2:
        return text
    return text.replace(home, "~").replace(json.dumps(home)[1:-1], "~")


def without_words(lines: Iterable[str]) -> Iterator[str]:
    """A log's lines without what could be a person's words. What is not known to be harmless is left out."""
    for line in lines:
        line = at_home(line.rstrip("\n"))
        if match := _ENTRY.match(line):
            head, logger, message = match.groups()
            ours = logger.partition(".")[0] in _OURS
            yield f"{head}{logger}: {_QUOTED.sub('…', message) if ours else '…'}"
        elif _FRAME.match(line) or line.startswith(_KEPT):
            yield line
        elif match := _RAISED.match(line):
            yield f"{match.group(1)}: …"


def _end_of(path: Path) -> list[str]:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MOST_LOG))
        return file.read().decode("utf-8", "replace").splitlines()


def describe(names: list[str], target: Path) -> str:
    where = target.resolve() if sys.platform != "win32" else target.absolute()
    return f"{where}\nIn it: {', '.join(names)}. No chats, settings or keys; look before you give it away."

"""The person's settings in one versioned JSON file, apart from the chats. Free of Qt.

A damaged file is renamed, told of and replaced by defaults; a value of the wrong type becomes its default; what a newer version wrote is
kept when this one writes. Writing replaces the file in one step, so that it is never half there.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from engine import Sentence

log = logging.getLogger(__name__)

FILE = "settings.json"
VERSION = 1
CHOICES = {
    "theme": ("system", "dark", "light"),
    "motion": ("system", "reduced"),
    "language": ("system", "en", "de"),
    "titles": ("auto", "on", "off"),
    "send": ("enter", "ctrl+enter"),
}

ZOOMS = (70, 80, 90, 100, 110, 125, 150, 175, 200)  # per cent
PRESET_NUMBERS: dict[str, type] = {
    "temperature": float,
    "top_p": float,
    "top_k": int,
    "min_p": float,
    "repetition_penalty": float,
    "max_tokens": int,
}
PORTS = (1024, 65535)  # those below belong to the system


@dataclass(frozen=True, slots=True)
class Settings:
    """theme: "system" follows the desktop. motion: "reduced" moves nothing. notify: tell of answers that end behind other windows.
    keep_two: load a second model beside the first where it fits. reproducible: the same prompt and seed give the same answer. send: the
    key that sends; the other one begins a line. zoom: of words and composer, per cent. titles: by the model; "auto" is those of models
    that are strong enough. api: let other programs on this machine in, on api_port. keys: sequences by the name of an action, where they
    are not the defaults. presets: the person's own."""

    theme: str = "system"
    motion: str = "system"
    language: str = "en"  # until more of the window speaks the others, a desktop's language is not taken for a wish
    notify: bool = True
    keep_two: bool = True
    reproducible: bool = False
    titles: str = "auto"
    send: str = "enter"
    zoom: int = 100
    api: bool = False
    api_port: int = 8420
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    presets: dict[str, dict[str, Any]] = field(default_factory=dict)


class SettingsFile:
    """The settings of a folder, in memory only for None.

    Attributes:
        settings: as they are now. trouble: what was wrong with the file, for a person; "" for nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = folder / FILE if folder is not None else None
        self._rest: dict[str, Any] = {}
        self.settings = Settings()
        self.trouble = ""
        if self._path is not None and self._path.exists():
            self._read(self._path)

    def change(self, **values: Any) -> str:
        """Change some settings and write them. Returns "" or, in a sentence, why they could not be written (they hold until the end)."""
        self.settings = replace(self.settings, **values)
        if self._path is None:
            return ""
        version = max(VERSION, self._rest.get("version", VERSION))
        text = json.dumps({**self._rest, "version": version, **asdict(self.settings)}, indent=1, ensure_ascii=False)
        part = self._path.with_name(self._path.name + ".part")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with part.open("w", encoding="utf-8", errors="replace") as file:  # half of a surrogate pair may be pasted into a name
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            part.replace(self._path)
        except OSError as error:
            log.warning("settings could not be written", exc_info=True)
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)
            return Sentence("Settings could not be saved ({0}); they hold until Omnibus ends.", error.strerror or error)
        return ""

    def _read(self, path: Path) -> None:
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(record, dict) or not isinstance(record.get("version"), int):
                raise ValueError("it holds no settings")
        except OSError as error:
            self.trouble = Sentence("Settings could not be read ({0}); the defaults hold.", error.strerror or error)
            return
        except (ValueError, RecursionError):
            aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S')}")
            with contextlib.suppress(OSError):
                path.replace(aside)
            log.exception("the settings are damaged")
            self.trouble = Sentence(
                "The file of settings was damaged: the defaults hold again. It is kept as {0}; chats are not touched.", aside.name
            )
            return
        self.settings = settings_from(record)
        known = {item.name for item in fields(Settings)}
        self._rest = {key: value for key, value in record.items() if key not in known}


def settings_from(record: dict[str, Any]) -> Settings:
    """Settings out of what of them is there and makes sense."""
    values: dict[str, Any] = {name: record[name] for name, choices in CHOICES.items() if record.get(name) in choices}
    values |= {name: record[name] for name in ("notify", "api", "keep_two", "reproducible") if isinstance(record.get(name), bool)}
    port = record.get("api_port")
    if isinstance(port, int) and not isinstance(port, bool) and PORTS[0] <= port <= PORTS[1]:
        values["api_port"] = port
    if record.get("zoom") in ZOOMS and not isinstance(record["zoom"], bool):
        values["zoom"] = int(record["zoom"])
    keys = record.get("keys")
    if isinstance(keys, dict):
        values["keys"] = {
            name: tuple(sequences)
            for name, sequences in keys.items()
            if isinstance(sequences, list) and all(isinstance(sequence, str) for sequence in sequences)
        }
    presets = record.get("presets")
    if isinstance(presets, dict):
        values["presets"] = {name: sound for name, preset in presets.items() if (sound := _preset_from(preset))}
    return Settings(**values)


def _preset_from(preset: Any) -> dict[str, Any]:
    """What of a preset names a parameter that we know, with a value of its kind."""
    if not isinstance(preset, dict):
        return {}
    numbers = {
        name: kind(preset[name])
        for name, kind in PRESET_NUMBERS.items()
        if isinstance(preset.get(name), (int, float)) and not isinstance(preset[name], bool) and 0 <= preset[name] < 2**31
    }
    return numbers | ({"system_prompt": preset["system_prompt"]} if isinstance(preset.get("system_prompt"), str) else {})

"""`omnibus shot DIR`: pictures of the window and the dashboard in every state, drawn without a screen, for anyone who wants to look.

The states come from `app/scenes.py`. Touches neither a model nor the person's chats.
"""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from PySide6.QtWidgets import QWidget

LANGUAGES = ("en", "de")  # as in `app/translations.py`, which needs Qt


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser("shot", help="draw the window in every state into PNG files")
    parser.add_argument("dir", type=Path, metavar="DIR", help="folder for the pictures; made if it is not there")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="just this one (may be given again)")
    parser.add_argument("--scale", type=float, default=1.0, help="pixels to a point, 1 to 2, as on a dense screen")
    parser.add_argument("--language", choices=LANGUAGES, default="en", help="the language of the window")


def run(args: argparse.Namespace) -> int:
    """0 done; 1 a picture could not be written; 2 asked in a wrong way."""
    if not 1.0 <= args.scale <= 2.0:
        return complain("--scale must be from 1 to 2.", 2)
    os.environ["QT_QPA_PLATFORM"] = "offscreen"  # also where there is a screen: the pictures are the same everywhere
    os.environ["QT_SCALE_FACTOR"] = str(args.scale)
    from PySide6.QtWidgets import QApplication

    from app import scenes
    from app.loop import let_go
    from app.translations import install

    unknown = [name for name in args.only if name not in scenes.SCENES]
    if unknown:
        return complain(f"there is no picture called {unknown[0]!r}. There are: {', '.join(scenes.SCENES)}.", 2)
    try:
        args.dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return complain(f"{args.dir} cannot be made: {error.strerror or error}.", 1)
    app = QApplication.instance() or QApplication([])
    assert isinstance(app, QApplication)
    translators = install(app, args.language)
    for name in args.only or scenes.SCENES:
        target = args.dir / f"{name}.png"
        try:
            scenes.picture_of(name, app, partial(save, target))
        except OSError as error:
            return complain(str(error), 1)
        print(target)
    for translator in translators:
        app.removeTranslator(translator)
    let_go(app)
    return 0


def save(target: Path, widget: QWidget) -> None:
    """Raises OSError when the file cannot be written."""
    if not widget.grab().save(str(target)):
        raise OSError(f"{target} could not be written: is there room, and may you write there?")


def complain(message: str, status: int) -> int:
    print(f"omnibus shot: {message}", file=sys.stderr)
    return status

"""The window in another language: Qt's own catalogues and ours, loaded before the first widget is made.

Strings go through `tr` with the class as their context; `resources/translations/omnibus_<language>.ts` holds the words, and the `.qm`
beside it is what is loaded (`pyside6-lrelease` makes it). English needs no catalogue.
"""

from __future__ import annotations

import logging
from datetime import datetime

from PySide6.QtCore import QCoreApplication, QDate, QLibraryInfo, QLocale, QTranslator

from app.theme.resources import resource_path

log = logging.getLogger(__name__)

LANGUAGES = ("en", "de")


def later(context: str, text: str) -> str:
    """Marks a string of a table made at import, which is translated where it is shown, under this context."""
    return text


def in_words(stage: str) -> str:
    """What a load is doing, in the window's language; as the engine says it where it is no word of ours (a name is in it, say)."""
    return QCoreApplication.translate("Stages", stage)


def begun(words: str) -> str:
    """Words as they begin a line: the first letter is a capital, the others stay ("KV", and the nouns of German)."""
    return words[:1].upper() + words[1:]


def day_in_words(moment: datetime) -> str:
    """A day as the window's language writes it, whatever the desktop's is: "5 May 2026"."""
    language = QCoreApplication.translate("Day", "en")  # a catalogue says its own
    return QLocale(language).toString(QDate(moment.year, moment.month, moment.day), QCoreApplication.translate("Day", "d MMM yyyy"))


def language_of(choice: str) -> str:
    """The language for a choice in the settings; "system" is the desktop's, English where we do not speak it."""
    wanted = QLocale.system().name().split("_")[0] if choice == "system" else choice
    return wanted if wanted in LANGUAGES else "en"


def install(app: QCoreApplication, choice: str) -> list[QTranslator]:
    """Load the catalogues of a language; they belong to the application, and stay as long as it does."""
    language = language_of(choice)
    if language == "en":
        return []
    translators = []
    places = (
        (f"qtbase_{language}", QLibraryInfo.path(QLibraryInfo.LibraryPath.TranslationsPath)),
        (f"omnibus_{language}", str(resource_path("translations"))),
    )
    for name, folder in places:
        translator = QTranslator(app)
        if translator.load(name, folder):
            app.installTranslator(translator)
            translators.append(translator)
        else:
            log.warning("the catalogue %s is not in %s", name, folder)
    return translators

"""The person's settings at work: look, keys, motion and notices of one window, applied at once and kept in their file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Qt, Signal, Slot
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QSystemTrayIcon

from app.numbers import said
from app.settings import ZOOMS, Settings, SettingsFile
from app.theme import Theme, app_icon

if TYPE_CHECKING:
    from app.window.main_window import MainWindow

NOTICE_MS = 6000


class Preferences(QObject):
    """Signals:
    changed: a setting is another one now.
    """

    changed = Signal()

    def __init__(self, window: MainWindow) -> None:
        super().__init__(window)
        self._window = window
        self._file = SettingsFile(None)
        self._fixed_theme = False
        self._tray: QSystemTrayIcon | None = None
        self._noticed = ""
        window.theme_changed.connect(self._on_theme_chosen)
        window.parts.panel.presets.own_changed.connect(lambda presets: self.change(presets=presets))

    @property
    def settings(self) -> Settings:
        return self._file.settings

    def attach(self, file: SettingsFile, fixed_theme: bool = False) -> None:
        """Use this file from now on. `fixed_theme`: the look was chosen on the command line, for this time."""
        self._file = file
        self._fixed_theme = fixed_theme
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._on_system_scheme)
        self._apply()
        if file.trouble:
            self._window.bar.ask(said(file.trouble), (("dismiss", self.tr("Dismiss"), "quiet"),))

    def change(self, **values: Any) -> None:
        """Change settings, at once and for the next time."""
        if all(getattr(self.settings, name) == value for name, value in values.items()):
            return
        self._fixed_theme = self._fixed_theme and "theme" not in values
        problem = self._file.change(**values)
        self._apply()
        self.changed.emit()
        if problem:
            self._window.bar.ask(said(problem), (("dismiss", self.tr("Dismiss"), "quiet"),))

    @Slot(int)
    def zoom(self, by: int) -> None:
        """One step larger (+1) or smaller (-1); 0: as designed."""
        now = min(range(len(ZOOMS)), key=lambda place: abs(ZOOMS[place] - self.settings.zoom))
        self.change(zoom=ZOOMS[max(0, min(len(ZOOMS) - 1, now + by))] if by else 100)

    def note_end(self, chat_id: str) -> None:
        """An answer has ended: say so if nobody looks at the window."""
        app = QApplication.instance()
        if (
            not self.settings.notify
            or self._window.isActiveWindow()
            or not isinstance(app, QApplication)
            or chat_id not in self._window.book
        ):
            return
        app.alert(self._window)
        if not QSystemTrayIcon.isSystemTrayAvailable() or not QSystemTrayIcon.supportsMessages():
            return
        if self._tray is None:
            self._tray = QSystemTrayIcon(app_icon(), self)
            self._tray.messageClicked.connect(self._on_notice_clicked)
            self._tray.activated.connect(self._window.come_forward)
        self._noticed = chat_id
        self._tray.show()
        title = self._window.book[chat_id].display_title
        self._tray.showMessage(title, self.tr("The answer is ready."), QSystemTrayIcon.MessageIcon.NoIcon, NOTICE_MS)

    def note_api(self) -> None:
        """The API server changed: when it could not be started, the setting is off again, and the window says why."""
        trouble = self._window.api.trouble
        if trouble and self.settings.api:
            self.change(api=False)
            self._window.bar.ask(trouble, (("dismiss", self.tr("Dismiss"), "quiet"),))

    # ------------------------------------------------------------------------------------------------------- private

    def _apply(self) -> None:
        self._window.keys.change(self.settings.keys)
        self._window.pages.set_zoom(self.settings.zoom / 100)
        self._window.pages.set_sends_with_ctrl(self.settings.send == "ctrl+enter")
        self._window.parts.panel.presets.set_own(self.settings.presets)
        self._window.titling.wanted = self.settings.titles
        app = QApplication.instance()
        if app is not None:
            app.setProperty("reduced_motion", self.settings.motion == "reduced")
        self._window.models.keep_two(self.settings.keep_two)
        self._window.models.reproduce(self.settings.reproducible)
        self._window.api.follow(self.settings.api, self.settings.api_port)
        if not self._fixed_theme:
            theme = Theme.named(self.settings.theme)
            if theme.name != self._window.theme.name:
                self._window.dress(theme)

    @Slot(str)
    def _on_theme_chosen(self, name: str) -> None:
        self.change(theme=name)

    @Slot(Qt.ColorScheme)
    def _on_system_scheme(self, _: Qt.ColorScheme) -> None:
        if self.settings.theme == "system":
            self._apply()

    @Slot()
    def _on_notice_clicked(self) -> None:
        self._window.come_forward()
        self._window.open_chat(self._noticed)

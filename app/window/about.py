"""The about box: what this is, which version, and the licence of everything in it. Not modal; closes with Esc."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QHBoxLayout,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.papers import Paper, parts
from app.theme import app_icon, resize_to_fit
from app.theme.fonts import mono_font
from app.translations import later
from engine.version import __version__

TAGLINE = later("AboutBox", "Many chats at once with one model on your own machine, and a window onto the batch they ride in.")
LIST = "QListWidget { border-radius: 10px; padding: 6px; } QListWidget::item { padding: 5px 8px; border-radius: 6px; }"
QUIET = later("AboutBox", "No account, no telemetry. Once a model is there, no network.")


class AboutBox(QDialog):
    """Attributes: papers (what is listed), list, text."""

    def __init__(self, parent: QWidget | None = None, papers: list[Paper] | None = None) -> None:
        super().__init__(parent)
        self.papers = parts() if papers is None else papers
        self.setWindowTitle(self.tr("About Omnibus"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setMinimumSize(560, 420)
        resize_to_fit(self, 860, 600)
        self.list = QListWidget(self)
        self.list.setAccessibleName(self.tr("Parts of Omnibus and their licences"))
        self.list.setFixedWidth(260)
        self.list.setStyleSheet(LIST)
        self.list.setFrameShape(QFrame.Shape.NoFrame)
        for paper in self.papers:
            item = QListWidgetItem(f"{paper.name} {paper.version}".strip())
            item.setToolTip(paper.licence)
            self.list.addItem(item)
        self.text = QPlainTextEdit(self)
        self.text.setReadOnly(True)
        self.text.setTabChangesFocus(True)
        self.text.setFont(mono_font(11))
        self.text.setFrameShape(QFrame.Shape.NoFrame)
        self.text.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)  # licences are set in lines
        self.text.setStyleSheet("QPlainTextEdit { border-radius: 10px; padding: 10px; }")
        self.text.setAccessibleName(self.tr("Licence"))
        self.licence = QLabel(self)
        self.licence.setProperty("kind", "dim")
        self.licence.setWordWrap(True)
        close = QPushButton(self.tr("Close"), self)
        close.clicked.connect(self.close)
        self._lay_out(close)
        self.list.currentRowChanged.connect(self._show)
        self.list.setCurrentRow(0)

    def _lay_out(self, close: QPushButton) -> None:
        mark = QLabel(self)
        mark.setPixmap(app_icon().pixmap(56, 56))
        title = QLabel(f"Omnibus {__version__}", self)
        title.setStyleSheet("font-size: 20px; font-weight: 600;")
        words = QLabel(f"{self.tr(TAGLINE)}\n{self.tr(QUIET)}", self)
        words.setWordWrap(True)
        words.setProperty("kind", "dim")
        column = QVBoxLayout()
        column.setSpacing(4)
        column.addWidget(title)
        column.addWidget(words)
        head = QHBoxLayout()
        head.setSpacing(16)
        head.addWidget(mark, 0, Qt.AlignmentFlag.AlignTop)
        head.addLayout(column, 1)
        right = QVBoxLayout()
        right.addWidget(self.licence)
        right.addWidget(self.text, 1)
        body = QHBoxLayout()
        body.setSpacing(12)
        body.addWidget(self.list)
        body.addLayout(right, 1)
        foot = QHBoxLayout()
        foot.addStretch(1)
        foot.addWidget(close)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(20, 20, 20, 16)
        whole.setSpacing(16)
        whole.addLayout(head)
        whole.addLayout(body, 1)
        whole.addLayout(foot)

    def _show(self, row: int) -> None:
        paper = self.papers[row]
        self.licence.setText("  ·  ".join(part for part in (paper.licence, paper.home) if part))
        self.text.setPlainText(paper.text())

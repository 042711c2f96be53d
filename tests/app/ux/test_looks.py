"""The looks: what is written can be read, what moves stands still beside it, what has the focus shows it, and every widget has a name."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import QRect, QSize, Qt
from PySide6.QtGui import QAccessible, QColor, QFontMetricsF, QGuiApplication, QImage, QPainter
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLabel, QLineEdit, QPlainTextEdit, QSpinBox, QTextEdit, QWidget

from app.composer.editor import MessageEdit
from app.settings import SettingsFile
from app.theme import Theme, icon
from app.theme.color import contrast, mix
from app.theme.style import make_style_sheet
from app.transcript.formats import Formats
from tests.app.conftest import settle
from tests.app.ux.desk import answered, asked, tick
from tests.app.ux.test_transcript import bubble_of, reached_by_tab

THEMES = [Theme.dark(), Theme.light()]
ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_words_in_every_colour_can_be_read_on_what_is_behind_them(theme):
    formats = Formats(theme)
    pairs = [(color, formats.code_background.name()) for color in formats.code_colors.values()]
    pairs += [(theme.text, formats.code_background.name()), (theme.text, formats.inline_code_background.name())]
    pairs += [(theme.text, mix(theme.accent, theme.surface, share)) for share in (0.3, 0.4, 0.45)]  # what is selected, found, marked
    pairs += [(theme.text, mix(theme.text, surface, 0.12)) for surface in (theme.sidebar, theme.surface, theme.raised)]  # pressed, chosen
    for surface in (theme.window, theme.sidebar, theme.surface, theme.raised):
        pairs += [(theme.seat_ink(seat, surface).name(), surface) for seat in range(12)]
        pairs += [(words, mix(theme.hover, surface, QColor(theme.hover).alphaF())) for words in (theme.text, theme.text_dim)]
    bad = [(words, ground, round(contrast(words, ground), 2)) for words, ground in pairs if contrast(words, ground) < 4.5]
    assert not bad


def placeholders(root: QWidget) -> list[QWidget]:
    fields = [field for kind in (QLineEdit, QTextEdit, QPlainTextEdit) for field in root.findChildren(kind)]
    return [field for field in fields if field.placeholderText()]


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_placeholders_can_be_read_in_every_field(make_window, theme):
    window, _ = make_window(theme=theme)
    window.parts.toggle_panel()
    for card in (window.overlays.search_card, window.overlays.palette, window.overlays.settings_card):
        card.open()
    settle()
    fields = placeholders(window)
    assert len(fields) >= 6
    for field in fields:
        color = field.palette().placeholderText().color()
        for ground in (theme.window, theme.surface, mix(theme.text, theme.surface, 0.03)):
            assert contrast(mix(color.name(), ground, color.alphaF()), ground) >= 4.5, (type(field).__name__, field.placeholderText())
    window.overlays.close_open()


def widths(font) -> set[float]:
    metrics = QFontMetricsF(font)
    return {round(metrics.horizontalAdvance(digit * 10), 3) for digit in "0123456789"}


def test_numbers_that_move_have_figures_of_one_width(make_window):
    window, engine = make_window()
    chat_id = asked(window, engine, ["x "] * 40)
    tick(window, engine, 4)
    window.monitor._tick()
    page = window.page(chat_id)
    page.view.sync()
    status = page.view.document().find("tok/s").charFormat().font()
    fonts = {
        "the speed in a tab": window.tabs._speed_font,
        "the model's progress": window.sidebar.model_words.font(),
        "the context's gauge": window.parts.panel.gauge_words.font(),
        "the words under an answer": status,
        "the finds": page.find_bar.count.font(),
        "the count of versions": page.view.bars.pinned._count.font(),
    }
    assert [name for name, font in fonts.items() if len(widths(font)) != 1] == []


def look(widget: QWidget) -> QImage:
    """The widget and a little around it, as the window shows it."""
    window = widget.window()
    widget = widget.parentWidget() if isinstance(widget, MessageEdit) else widget  # the composer's border is its ring
    area = widget.rect().translated(widget.mapTo(window, widget.rect().topLeft())).adjusted(-3, -3, 3, 3)
    return window.grab(area).toImage()


def changed(one: QImage, other: QImage) -> int:
    size = one.size()
    return sum(one.pixel(x, y) != other.pixel(x, y) for x in range(size.width()) for y in range(size.height()))


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_whatever_has_the_focus_shows_it(make_window, theme):
    window, engine = make_window(theme=theme)
    window.activateWindow()
    answered(window, engine, "words")
    window.parts.toggle_panel()
    settle()
    silent = []
    for widget in reached_by_tab(window):
        window.tabs.setFocus() if widget is not window.tabs else window.focus_composer()
        settle()
        before = look(widget)
        widget.setFocus(Qt.FocusReason.TabFocusReason)
        settle()
        # A ring of two pixels around the smallest of them has some 200; the caret of a field alone has 20.
        if changed(before, look(widget)) < 60:
            silent.append(f"{type(widget).__name__} {widget.accessibleName() or widget.objectName()}")
    assert not silent


def test_every_button_is_reached_with_tab(make_window):
    window, engine = make_window()
    window.activateWindow()
    answered(window, engine, "words")
    window.parts.toggle_panel()
    settle()
    reached = set(map(id, reached_by_tab(window)))
    wanted = [button for button in window.findChildren(QAbstractButton) if button.isVisible() and button.isEnabled()]
    wanted = [button for button in wanted if not isinstance(button.parent(), QLineEdit)]  # what clears a field: Esc and Delete do
    assert len(wanted) > 15
    missed = [button.accessibleName() or button.toolTip() or button.text() for button in wanted if id(button) not in reached]
    assert not missed


def ours(root: QWidget) -> list[QWidget]:
    """The visible widgets that paint themselves, and those one can use."""
    found = [root, *root.findChildren(QWidget)]
    return [widget for widget in found if widget.isVisible() and type(widget).__module__.startswith("app.")]


def spoken(widget: QWidget) -> str:
    """What a screen reader calls it."""
    return QAccessible.queryAccessibleInterface(widget).text(QAccessible.Text.Name)


def test_every_widget_of_ours_has_a_name_and_what_can_be_pressed_a_role(make_window):
    window, engine = make_window()
    answered(window, engine, "words")
    window.parts.toggle_panel()
    window.parts.set_dashboard("beside")
    for card in (window.overlays.search_card, window.overlays.palette, window.overlays.settings_card):
        card.open()
    settle()
    paint = [widget for widget in ours(window) if "paintEvent" in vars(type(widget)) or widget.focusPolicy() & Qt.FocusPolicy.TabFocus]
    containers = {"WindowParts", "TabRow", "MainWindow"}  # they hold the others and paint the ground under them
    nameless = {type(widget).__name__ for widget in paint if not spoken(widget)} - containers
    buttons = [widget for widget in ours(window) if isinstance(widget, QAbstractButton)]
    roles = {QAccessible.Role.Button, QAccessible.Role.ButtonMenu, QAccessible.Role.CheckBox, QAccessible.Role.RadioButton}
    odd = {type(button).__name__ for button in buttons if QAccessible.queryAccessibleInterface(button).role() not in roles}
    mouse = ("mousePressEvent", "mouseReleaseEvent")
    pressed = [w for w in ours(window) if any(name in vars(type(w)) for name in mouse) and w.focusPolicy() & Qt.FocusPolicy.TabFocus]
    client = {type(w).__name__ for w in pressed if QAccessible.queryAccessibleInterface(w).role() is QAccessible.Role.Client}
    window.overlays.close_open()
    window.parts.set_dashboard("off")
    assert (nameless, odd, client) == (set(), set(), set())


def test_actions_alone_have_the_accent(make_window):
    window, _ = make_window()
    gauge = window.parts.panel.gauge
    window.parts.toggle_panel()
    window.parts.panel.show_context(600, 1000)
    settle()
    image = gauge.grab().toImage()
    colors = {image.pixelColor(x, image.height() // 2).name() for x in range(image.width())}
    assert Theme.dark().accent not in colors and Theme.dark().text_dim in colors
    assert Theme.dark().accent not in Theme.dark().seat_hues and Theme.light().accent not in Theme.light().seat_hues


def test_the_window_follows_the_systems_light_unless_one_was_chosen(make_window, tmp_path, monkeypatch):
    window, _ = make_window()
    system = ["dark"]
    named = Theme.named
    monkeypatch.setattr(Theme, "named", staticmethod(lambda name: named(system[0] if name == "system" else name)))
    window.preferences.attach(SettingsFile(tmp_path))
    for light in ("light", "dark"):
        system[0] = light
        QGuiApplication.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Light if light == "light" else Qt.ColorScheme.Dark)
        assert window.theme.name == light
    window.preferences.change(theme="dark")
    system[0] = "light"
    QGuiApplication.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Light)
    assert window.theme.name == "dark"


def test_sizes_of_type(make_window):
    window, engine = make_window()
    title = next(label for label in window.findChildren(QLabel) if label.property("kind") == "title")
    assert title.font().pixelSize() == 20 or title.fontInfo().pixelSize() == 20
    small = next(label for label in window.findChildren(QLabel) if label.property("kind") == "small")
    assert small.fontInfo().pixelSize() in (12, 13)
    view = window.page(answered(window, engine, "many words in one paragraph " * 30)).view
    cursor = view.document().find("many words")
    assert cursor.charFormat().font().pixelSize() in (15, 16)
    layout = cursor.block().layout()
    pitch = layout.lineAt(2).y() - layout.lineAt(1).y()
    assert abs(pitch / cursor.charFormat().font().pixelSize() - 1.6) < 0.05


def test_corners_are_as_round_as_promised(make_window):
    window, engine = make_window()
    sheet = make_style_sheet(Theme.dark())

    def radius(selector: str) -> int:
        found = re.search(rf"^{re.escape(selector)} \{{[^}}]*border-radius: (\d+)px", sheet, re.MULTILINE)
        assert found, selector
        return int(found.group(1))

    assert radius('QFrame[kind="card"]') == 14
    assert radius("QPushButton") == radius("QToolButton") == radius("QLineEdit, QComboBox, QSpinBox, QDoubleSpinBox") == 10
    pill = window.page(window.current_chat).suggestions[0]
    assert pill.property("kind") == "pill" and 2 * radius('QPushButton[kind="pill"]') >= pill.height() - 1
    view = window.page(answered(window, engine, "words")).view
    box = bubble_of(view, view.entries[0]).toRect()
    image = view.viewport().grab().toImage()
    inside = image.pixelColor(box.center().x(), box.top() + 4).name()
    diagonal = [image.pixelColor(box.left() + step, box.top() + step).name() == inside for step in range(12)]
    assert diagonal.index(True) in (5, 6), "a circle of 18 pixels meets the diagonal after 18 * (1 - 1 / √2) = 5.3"


def test_numbers_stand_clear_of_their_fields_edge_and_on_the_line_of_their_label(make_window):
    window, _ = make_window()
    window.parts.toggle_panel()
    settle()
    panel = window.parts.panel
    for field in (panel.temperature, panel.top_k, panel.seed):
        image = field.grab().toImage()
        ground = image.pixelColor(field.width() // 2, field.height() // 2).name()
        marks = [x for x in range(4, 60) for y in range(8, field.height() - 8) if contrast(image.pixelColor(x, y).name(), ground) > 2]
        assert 9 <= min(marks) <= 14
    labels = {label.text(): label for label in panel.findChildren(QLabel)}
    for words, field in (("Temperature", panel.temperature), ("Seed", panel.seed)):
        middle = labels[words].mapTo(panel, labels[words].rect().center()).y()
        assert abs(middle - field.mapTo(panel, field.rect().center()).y()) <= 1


def test_empty_places_say_what_they_are_for(make_window, qtbot):
    window, _ = make_window()
    assert window.sidebar.empty.isVisible() and "chats" in window.sidebar.empty.text() and window.sidebar.new_button.isVisible()
    window.overlays.open_search()
    card = window.overlays.search_card
    assert "are searched" in card.preview.placeholderText()
    words = card.preview.placeholderText()
    card.preview.setFixedWidth(200)
    settle()
    before = card.preview.grab().toImage()
    card.preview.setPlaceholderText(" ".join(words.split()[:3]))
    settle()
    line = card.preview.fontMetrics().lineSpacing()
    foot = QRect(0, 14 + 2 * line, 200, 2 * line)
    assert before.copy(foot) != card.preview.grab().toImage().copy(foot), "all of its lines are there"
    card.preview.setPlaceholderText(words)
    card.field.setText("nowhere to be found")
    qtbot.waitUntil(lambda: card.shown_for == "nowhere to be found", timeout=30_000)
    assert card.words.text() == "Nothing was found."
    window.overlays.close_open()


@pytest.mark.parametrize("scale", [1.0, 1.25, 1.5, 2.0])
def test_icons_are_drawn_at_the_screens_own_pixels(qapp, scale):
    for name in ("send", "compose", "gear"):
        pixmap = icon(name, "#ff0000").pixmap(QSize(18, 18), scale)
        assert pixmap.width() == pixmap.height() == int(18 * scale + 0.5)
        drawn = QImage(pixmap.size(), QImage.Format.Format_ARGB32_Premultiplied)
        drawn.fill(Qt.GlobalColor.transparent)
        painter = QPainter(drawn)
        icon(name, "#ff0000").paint(painter, drawn.rect())
        painter.end()
        got = pixmap.toImage().convertToFormat(QImage.Format.Format_ARGB32_Premultiplied)
        assert [got.pixel(x, y) for x in range(got.width()) for y in range(got.height())] == [
            drawn.pixel(x, y) for x in range(drawn.width()) for y in range(drawn.height())
        ]


SCALED = """
import sys
from PySide6.QtWidgets import QApplication, QLabel, QPushButton
from tests.app.fakes import FakeEngine, Script
from app.theme import Theme, apply_theme
from app.translations import install
from app.window.main_window import MainWindow
from app.chats.book import ChatBook
app = QApplication(sys.argv[:1])
kept = install(app, sys.argv[1])
apply_theme(app, Theme.dark())
engine = FakeEngine(scripts=__import__("collections").deque([Script(("word ",) * 40)]))
window = MainWindow(engine, ChatBook(), Theme.dark())
window.show()
window.parts.toggle_panel()
chat = window.new_chat()
window.send(chat, "question")
window.send(chat, "queued")
engine.tick(9)
window.bridge.drain()
window.close_tab(0)
for _ in range(5):
    app.processEvents()
cut = []
for button in window.findChildren(QPushButton):
    if button.isVisible() and button.text() and button.fontMetrics().horizontalAdvance(button.text().replace("&", "")) > button.width():
        cut.append(button.text())
for label in window.findChildren(QLabel):
    lines = label.text() and label.isVisible() and not label.wordWrap() and label.fontMetrics().horizontalAdvance(label.text())
    if lines and lines > label.width() + 1:
        cut.append(label.text())
column = window.page(chat).view.column.width
assert not cut, cut
engine.close(); window.shut_down()
print(window.devicePixelRatioF(), column)
"""


@pytest.mark.parametrize(("scale", "language"), [("1", "de"), ("1.25", "en"), ("1.5", "de"), ("2", "en")])
def test_nothing_is_cut_at_any_scale_in_either_language(scale, language):
    told = os.environ | {"QT_SCALE_FACTOR": scale, "QT_SCALE_FACTOR_ROUNDING_POLICY": "PassThrough", "QT_QPA_PLATFORM": "offscreen"}
    done = subprocess.run([sys.executable, "-c", SCALED, language], cwd=ROOT, env=told, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert float(done.stdout.split()[0]) == float(scale)


def test_every_choice_and_field_of_the_settings_has_a_name(make_window):
    window, _ = make_window()
    window.overlays.open_settings()
    card = window.overlays.settings_card
    fields = [field for kind in (QComboBox, QLineEdit, QAbstractButton) for field in card.findChildren(kind) if field.isVisible()]
    parts = (QLineEdit, QSpinBox)  # what has the name, the number or the text itself
    nameless = [field for field in fields if not isinstance(field.parent(), parts) and not spoken(field)]
    assert not [f"{type(field).__name__} in {type(field.parent()).__name__}" for field in nameless]
    window.overlays.close_open()

"""From a theme to a look: palette, fonts and one style sheet for Qt's stock widgets. Custom-painted widgets read the theme themselves.

Variants are asked for with a dynamic property, `widget.setProperty("kind", "primary")`:
buttons: primary, danger, quiet (no frame), pill, field (looks like one to type in); frames: card, bar; labels: title, dim, small, danger.
"""

from __future__ import annotations

from PySide6.QtGui import QColor, QPalette
from PySide6.QtWidgets import QAbstractSpinBox, QApplication

from app.theme.color import mix
from app.theme.fonts import load_fonts, ui_font
from app.theme.resources import resource_path
from app.theme.theme import Theme

BASE_PIXELS = 14


def apply_theme(app: QApplication, theme: Theme) -> None:
    """Dress the whole application in `theme`. May be called again to change it while the window is up."""
    load_fonts()
    app.setStyle("Fusion")
    app.setPalette(make_palette(theme))
    app.setFont(ui_font(BASE_PIXELS))
    app.setStyleSheet(make_style_sheet(theme))


def pad_number(field: QAbstractSpinBox) -> None:
    """Room before a number: Qt gives a field with our arrows none, whatever the style sheet says."""
    field.lineEdit().setTextMargins(8, 0, 0, 0)


def make_palette(theme: Theme) -> QPalette:
    """A QPalette with the theme's colours in every role that stock widgets read."""
    role = QPalette.ColorRole
    palette = QPalette()
    colors = {
        role.Window: theme.window,
        role.WindowText: theme.text,
        role.Base: theme.surface,
        role.AlternateBase: theme.raised,
        role.Text: theme.text,
        role.PlaceholderText: theme.text_dim,
        role.Button: theme.raised,
        role.ButtonText: theme.text,
        role.BrightText: theme.danger,
        role.Highlight: mix(theme.accent, theme.surface, 0.45),
        role.HighlightedText: theme.text,
        role.Link: theme.accent,
        role.LinkVisited: theme.accent,
        role.ToolTipBase: theme.raised,
        role.ToolTipText: theme.text,
        role.Accent: theme.accent,
        role.Light: theme.raised,
        role.Midlight: theme.raised,
        role.Mid: theme.sidebar,
        role.Dark: theme.sidebar,
        role.Shadow: theme.window,
    }
    for name, color in colors.items():
        palette.setColor(name, QColor(color))
    for name in (role.Text, role.WindowText, role.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, name, QColor(mix(theme.text_dim, theme.surface, 0.6)))
    return palette


def make_style_sheet(theme: Theme) -> str:
    """The style sheet for stock widgets."""
    t = theme
    field = t.surface if t.is_dark else "#ffffff"
    line = mix(t.text, t.surface, 0.14)
    up, down = (resource_path("icons", f"step-{way}.svg").as_posix() for way in ("up", "down"))
    ring = mix(t.text, t.surface, 0.62)
    check = resource_path("icons", f"checked-{'dark' if t.is_dark else 'light'}.svg").as_posix()
    handle = mix(t.text, t.window, 0.22)
    handle_hover = mix(t.text, t.window, 0.38)
    return f"""
QToolTip {{ background: {t.raised}; color: {t.text}; border: 1px solid {line}; padding: 5px 8px; font-size: 12px; }}

QPushButton {{
    background: {t.raised}; color: {t.text}; border: 1px solid {line}; border-radius: 10px; padding: 6px 14px; min-height: 20px;
}}
QPushButton:hover {{ background: {mix(t.text, t.raised, 0.07)}; }}
QPushButton:pressed {{ background: {mix(t.text, t.raised, 0.12)}; }}
QPushButton:focus, QToolButton:focus {{ border: 2px solid {t.accent}; }}
QPushButton:disabled {{ color: {mix(t.text_dim, t.surface, 0.6)}; }}
QPushButton[kind="primary"] {{ background: {t.accent}; color: {t.on_accent}; border: 1px solid {t.accent}; font-weight: 600; }}
QPushButton[kind="primary"]:hover {{ background: {mix("#ffffff", t.accent, 0.12)}; }}
QPushButton[kind="primary"]:focus {{ border: 2px solid {t.text}; }}
QPushButton[kind="primary"]:disabled {{
    background: {mix(t.text, t.surface, 0.08)}; color: {mix(t.text_dim, t.surface, 0.6)}; border: 1px solid {mix(t.text, t.surface, 0.08)};
}}
QPushButton[kind="danger"]:disabled {{ color: {mix(t.text_dim, t.surface, 0.6)}; border: 1px solid {line}; }}
QPushButton[kind="danger"] {{ background: transparent; color: {t.danger}; border: 1px solid {mix(t.danger, t.surface, 0.5)}; }}
QPushButton[kind="danger"]:hover {{ background: {mix(t.danger, t.surface, 0.12)}; }}
QPushButton[kind="quiet"] {{ background: transparent; border: 1px solid transparent; }}
QPushButton[kind="quiet"]:hover {{ background: {t.hover}; }}
QPushButton[kind="field"] {{ background: {field}; color: {t.text_dim}; text-align: left; padding: 5px 10px; }}
QPushButton[kind="field"]:hover {{ color: {t.text}; border: 1px solid {mix(t.text, t.surface, 0.28)}; }}
QPushButton[kind="pill"] {{ border-radius: 16px; padding: 5px 14px; color: {t.text_dim}; background: transparent; }}
QPushButton[kind="pill"]:hover {{ color: {t.text}; background: {t.hover}; }}

QToolButton {{ background: transparent; border: 2px solid transparent; border-radius: 10px; padding: 3px; color: {t.text_dim}; }}
QToolButton:hover {{ background: {t.hover}; color: {t.text}; }}
QToolButton:disabled {{ color: {mix(t.text_dim, t.surface, 0.5)}; }}
QToolButton:pressed, QToolButton:checked {{ background: {mix(t.text, t.sidebar, 0.12)}; color: {t.text}; }}
QToolButton::menu-indicator {{ image: none; }}

QLineEdit, QComboBox, QSpinBox, QDoubleSpinBox {{
    background: {field}; color: {t.text}; border: 1px solid {line}; border-radius: 10px; padding: 5px 10px; min-height: 20px;
    selection-background-color: {mix(t.accent, t.surface, 0.45)};
}}
QLineEdit:focus, QComboBox:focus {{ border: 2px solid {t.accent}; padding: 4px 9px; }}
QSpinBox:focus, QDoubleSpinBox:focus {{ border: 2px solid {t.accent}; padding: 4px 3px; }}
QLineEdit:disabled, QComboBox:disabled, QSpinBox:disabled, QDoubleSpinBox:disabled {{ color: {mix(t.text_dim, t.surface, 0.6)}; }}
QLineEdit, QComboBox, QTextEdit, QPlainTextEdit {{ placeholder-text-color: {t.text_dim}; }}
QSpinBox, QDoubleSpinBox {{ padding-left: 4px; padding-right: 4px; }}
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button {{ border: none; background: transparent; width: 20px; }}
QAbstractSpinBox::up-button {{ subcontrol-origin: border; subcontrol-position: top right; margin: 2px 3px 0 0; }}
QAbstractSpinBox::down-button {{ subcontrol-origin: border; subcontrol-position: bottom right; margin: 0 3px 2px 0; }}
QAbstractSpinBox::up-arrow {{ image: url("{up}"); width: 12px; height: 12px; }}
QAbstractSpinBox::down-arrow {{ image: url("{down}"); width: 12px; height: 12px; }}
QComboBox::drop-down {{ border: none; width: 22px; }}
QComboBox::down-arrow {{ image: url("{down}"); width: 12px; height: 12px; }}
QComboBox QAbstractItemView {{ background: {t.raised}; border: 1px solid {line}; selection-background-color: {t.hover}; outline: none; }}

QCheckBox::indicator, QRadioButton::indicator {{ width: 16px; height: 16px; border: 1px solid {ring}; background: {field}; }}
QCheckBox::indicator {{ border-radius: 5px; }}
QRadioButton::indicator {{ border-radius: 9px; }}
QCheckBox::indicator:hover, QRadioButton::indicator:hover {{ border: 1px solid {t.text}; }}
QCheckBox::indicator:checked {{ background: {t.accent}; border: 1px solid {t.accent}; image: url("{check}"); }}
QRadioButton::indicator:checked {{ width: 8px; height: 8px; border: 5px solid {t.accent}; background: {t.on_accent}; }}
QCheckBox::indicator:disabled, QRadioButton::indicator:disabled {{ border: 1px solid {line}; background: transparent; }}
QCheckBox::indicator:checked:disabled {{ background: {ring}; }}
QCheckBox::indicator:focus, QRadioButton::indicator:focus {{ border: 2px solid {t.accent}; width: 14px; height: 14px; }}
QRadioButton::indicator:checked:focus {{ width: 8px; height: 8px; border: 5px solid {t.accent}; background: {t.text}; }}
QCheckBox::indicator:checked:focus {{ border: 2px solid {t.text}; }}

QSlider::groove:horizontal {{ height: 4px; border-radius: 2px; background: {line}; }}
QSlider::sub-page:horizontal {{ height: 4px; border-radius: 2px; background: {t.accent}; }}
QSlider::handle:horizontal {{ width: 16px; height: 16px; margin: -6px 0; border-radius: 8px; background: {t.text}; }}
QSlider::handle:horizontal:focus {{ width: 12px; height: 12px; border: 2px solid {t.accent}; }}

QScrollBar:vertical {{ background: transparent; width: 12px; margin: 0; }}
QScrollBar::handle:vertical {{ background: {handle}; min-height: 32px; border-radius: 3px; margin: 3px; }}
QScrollBar::handle:vertical:hover {{ background: {handle_hover}; }}
QScrollBar:horizontal {{ background: transparent; height: 12px; margin: 0; }}
QScrollBar::handle:horizontal {{ background: {handle}; min-width: 32px; border-radius: 3px; margin: 3px; }}
QScrollBar::handle:horizontal:hover {{ background: {handle_hover}; }}
QScrollBar::add-line, QScrollBar::sub-line {{ width: 0; height: 0; }}
QScrollBar::add-page, QScrollBar::sub-page {{ background: transparent; }}
QAbstractScrollArea::corner {{ background: transparent; }}

QMenu {{ background: {t.raised}; color: {t.text}; border: 1px solid {line}; border-radius: 10px; padding: 6px; }}
QMenu::item {{ padding: 6px 22px 6px 14px; border-radius: 6px; }}
QMenu::item:selected {{ background: {mix(t.text, t.raised, 0.08)}; }}
QMenu::item:disabled {{ color: {mix(t.text_dim, t.raised, 0.6)}; }}
QMenu::separator {{ height: 1px; background: {line}; margin: 5px 8px; }}

QSplitter::handle {{ background: {mix(t.text, t.window, 0.08)}; }}
QSplitter::handle:hover {{ background: {t.accent}; }}

QHeaderView {{ background: {t.surface}; border: none; }}
QHeaderView::section {{
    background: {t.surface}; color: {t.text_dim}; border: none; border-bottom: 1px solid {line}; padding: 5px 3px; font-size: 12px;
}}
QTableView, QListView, QTreeView {{
    background: {t.surface}; alternate-background-color: {t.raised}; color: {t.text}; border: none; gridline-color: {line}; outline: none;
    selection-background-color: {mix(t.accent, t.surface, 0.30)}; selection-color: {t.text};
}}

QFrame[kind="card"] {{ background: {t.surface}; border: 1px solid {line}; border-radius: 14px; }}
QFrame[kind="bar"] {{ background: {t.raised}; border: 1px solid {line}; border-radius: 12px; }}
QLabel {{ background: transparent; }}
QLabel[kind="title"] {{ font-size: 20px; font-weight: 600; }}
QLabel[kind="dim"] {{ color: {t.text_dim}; }}
QLabel[kind="small"] {{ color: {t.text_dim}; font-size: 12px; }}
QLabel[kind="danger"] {{ color: {t.danger}; }}
"""

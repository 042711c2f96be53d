"""What everything looks like: colours, type, icons, and the style sheet for stock widgets."""

from app.theme.fitting import resize_to_fit
from app.theme.fonts import load_fonts, mono_font, tabular, ui_font
from app.theme.icons import app_icon, icon
from app.theme.resources import resource_path
from app.theme.style import apply_theme, pad_number
from app.theme.theme import Theme
from app.theme.wheel import leave_the_wheel

__all__ = [
    "Theme",
    "app_icon",
    "apply_theme",
    "icon",
    "leave_the_wheel",
    "load_fonts",
    "mono_font",
    "pad_number",
    "resize_to_fit",
    "resource_path",
    "tabular",
    "ui_font",
]

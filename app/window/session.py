"""The window's session: which tabs are open, as text that another day can restore. Knows no store."""

from __future__ import annotations

import json
from typing import Any

from PySide6.QtCore import QByteArray

from app.window.main_window import MainWindow


def describe(window: MainWindow) -> str:
    """The open tabs, the one in view, which sides are open and how wide, and where the window stands."""
    kept = [chat_id for chat_id in window.open_chats if not window.book[chat_id].empty or window.book[chat_id].drafted]
    record: dict[str, Any] = {"tabs": kept, "current": window.current_chat, "sidebar": window.parts.sidebar_wish}
    record["panel"] = not window.parts.panel.isHidden()
    record["closed"] = window.open_tabs.closed
    record["dashboard"], record["divided"] = window.parts.dashboard_wish, window.parts.divided
    record["geometry"] = bytes(window.saveGeometry().toBase64().data()).decode()
    return json.dumps(record)


def restore(window: MainWindow, text: str | None) -> None:
    """Open the tabs of another day again. What cannot be read, or is gone, is passed over."""
    try:
        session = json.loads(text or "{}")
    except ValueError:
        return
    if not isinstance(session, dict):
        return
    current, sidebar, panel, dashboard = (session.get(name) for name in ("current", "sidebar", "panel", "dashboard"))
    known = [chat_id for chat_id in _listed(session, "tabs") if isinstance(chat_id, str) and chat_id in window.book]
    divided = [width for width in _listed(session, "divided") if isinstance(width, int) and 0 < width < 20_000]
    closed = [(entry[0], max(0, entry[1])) for entry in _listed(session, "closed") if _is_place(entry)]
    geometry = str(session.get("geometry", "")).encode("ascii", "ignore")
    first = window.open_chats[0]  # the empty one that a window begins with
    window.add_tabs(known)
    if known:
        window.open_chat(current if current in known else known[-1])
        if window.book[first].empty and not window.book[first].drafted:
            window.close_tab(window.tabs.index_of(first))
    window.open_tabs.set_closed(closed)
    window.sidebar.set_collapsed(sidebar is False)
    if (panel is True) is window.parts.panel.isHidden():
        window.parts.toggle_panel()
    if len(divided) == 2:
        window.parts.divide(divided)
    if dashboard in ("beside", "full"):
        window.parts.set_dashboard(dashboard)
    # Qt brings a window whose screen is gone onto one that is there; what it cannot read changes nothing.
    window.restoreGeometry(QByteArray.fromBase64(geometry))


def _listed(session: dict[str, Any], name: str) -> list[Any]:
    values = session.get(name)
    return values if isinstance(values, list) else []


def _is_place(entry: Any) -> bool:
    """Is it a closed tab: a chat, and where its tab stood?"""
    return isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) and isinstance(entry[1], int)

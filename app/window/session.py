"""The window's session: which tabs are open, as text that another day can restore. Knows no store."""

from __future__ import annotations

import json

from app.window.main_window import MainWindow


def describe(window: MainWindow) -> str:
    """The open tabs, the one in view, and whether the sidebar is open."""
    kept = [chat_id for chat_id in window.open_chats if not window.book[chat_id].empty or window.book[chat_id].drafted]
    return json.dumps({"tabs": kept, "current": window.current_chat, "sidebar": not window.sidebar.collapsed})


def restore(window: MainWindow, text: str | None) -> None:
    """Open the tabs of another day again. What cannot be read, or is gone, is passed over."""
    try:
        session = json.loads(text or "{}")
        tabs, current, sidebar = list(session.get("tabs", ())), session.get("current"), bool(session.get("sidebar", True))
    except (ValueError, AttributeError, TypeError):
        return
    known = [chat_id for chat_id in tabs if isinstance(chat_id, str) and chat_id in window.book]
    first = window.open_chats[0]  # the empty one that a window begins with
    window.add_tabs(known)
    if known:
        window.open_chat(current if current in known else known[-1])
        if window.book[first].empty and not window.book[first].drafted:
            window.close_tab(window.tabs.index_of(first))
    window.sidebar.set_collapsed(not sidebar)

"""Chats as one HTML page that needs nothing from anywhere: no script, no image, no font is fetched when it is opened.

What a model wrote is untrusted: raw HTML in it is shown as text, images become links to where they would have come from, and only
http(s) and mailto links are links. The page forbids everything else by its content security policy.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict

from app.chats.exchange.markdown import SPEAKERS, moment, state_words
from app.chats.model import Chat, ChatMessage, Role

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.6 Inter, system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 3rem 0 0; } time, .note { color: #777; font-size: .85rem; }
section { margin: 1.5rem 0; } section > b { font-size: .85rem; color: #777; font-weight: 600; }
.user > div { background: rgba(128,128,128,.14); border-radius: 14px; padding: .4rem 1rem; }
.typed { white-space: pre-wrap; }
pre { background: rgba(128,128,128,.12); border-radius: 8px; padding: .8rem 1rem; overflow-x: auto; }
code { font-family: "JetBrains Mono", ui-monospace, monospace; font-size: .9em; }
table { border-collapse: collapse; } th, td { border: 1px solid rgba(128,128,128,.4); padding: .3rem .6rem; }
blockquote { border-left: 3px solid rgba(128,128,128,.4); margin-left: 0; padding-left: 1rem; }
""".strip()


class _Renderer(RendererHTML):
    """markdown-it's renderer without anything that is fetched."""

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType) -> str:
        token = tokens[idx]
        source = str(token.attrs.get("src", ""))
        words = escape(token.content or "image")
        return f'<a href="{escape(source)}">[{words}]</a>' if source.startswith(("https://", "http://")) else f"[{words}]"


def make_parser() -> MarkdownIt:
    """Markdown to HTML that can do nothing."""
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}, renderer_cls=_Renderer)
    parser.validateLink = _may_link  # type: ignore[method-assign, assignment]
    return parser.enable(["table", "strikethrough"])


def _may_link(address: str) -> bool:
    return address.lower().startswith(("http://", "https://", "mailto:"))


def dump(chats: Iterable[Chat]) -> str:
    """A page of these chats, each as it is in view."""
    parser = make_parser()
    bodies = [body(chat, parser) for chat in chats]
    title = "Chats"
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f'<meta name="viewport" content="width=device-width">\n<title>{title}</title>\n<style>\n{_STYLE}\n</style>\n</head>\n<body>\n'
    )
    return head + "\n".join(bodies) + "\n</body>\n</html>\n"


def body(chat: Chat, parser: Any) -> str:
    """One chat as an article."""
    parts = [f"<article>\n<h1>{escape(chat.display_title)}</h1>\n<time>{moment(chat.created)}</time>"]
    if chat.settings.system_prompt.strip():
        parts.append(f'<section><b>System prompt</b><pre class="note">{escape(chat.settings.system_prompt)}</pre></section>')
    parts += [_message(chat, message, parser) for message in chat.messages]
    return "\n".join([*parts, "</article>"])


def _message(chat: Chat, message: ChatMessage, parser: Any) -> str:
    name = escape(SPEAKERS[message.role] + (f" ({message.model})" if message.model else ""))
    files = "".join(
        f'<p class="note">Attached: {escape(attachment.name)}</p><pre>{escape(attachment.text)}</pre>' for attachment in message.attachments
    )
    versions = chat.tree.versions(message)
    notes = [state_words(message)] if state_words(message) else []
    if len(versions) > 1:
        notes.append(f"Version {versions.index(message) + 1} of {len(versions)}.")
    note = f'<p class="note">{escape(" ".join(notes))}</p>' if notes else ""
    if message.role is Role.USER:  # shown as typed, as in the window
        text = f'<p class="typed">{escape(message.text)}</p>' if message.text else ""
    else:
        text = parser.render(message.text)
    return f'<section class="{message.role.value}">\n<b>{name}</b>\n<div>{files}{text}</div>{note}\n</section>'

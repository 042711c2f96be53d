"""Chats as one HTML page that needs nothing from anywhere: no script, no image, no font is fetched when it is opened.

What a model wrote is untrusted, see `answers`; the page forbids everything else by its content security policy.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from app.chats.exchange.answers import make_parser
from app.chats.exchange.markdown import SPEAKERS, moment, state_words, thought_words
from app.chats.model import Chat, ChatMessage, Role
from engine import split_reasoning

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.6 Inter, system-ui, sans-serif; max-width: 46rem; margin: 3rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 3rem 0 0; } h1 + p { margin-top: .3rem; } section h1 { margin-top: 1.5rem; }
time, .note, section > b, .thought { color: #5c6068; color: light-dark(#5c6068, #a4a8b0); } time, .note { font-size: .85rem; }
section { margin: 1.5rem 0; } section > b { font-size: .85rem; font-weight: 600; }
.user > div { background: rgba(128,128,128,.14); border-radius: 14px; padding: .4rem 1rem; }
.typed { white-space: pre-wrap; }
pre { background: rgba(128,128,128,.12); border-radius: 8px; padding: .8rem 1rem; overflow-x: auto; }
code { font-family: "JetBrains Mono", ui-monospace, monospace; font-size: .9em; }
table { border-collapse: collapse; } th, td { border: 1px solid rgba(128,128,128,.4); padding: .3rem .6rem; }
blockquote { border-inline-start: 3px solid rgba(128,128,128,.4); margin-inline-start: 0; padding-inline-start: 1rem; }
.math { text-align: center; overflow-x: auto; } .formula svg { overflow: visible; } .thought { margin: .5rem 0; }
.thoughts { white-space: pre-wrap; margin: .4rem 1rem; } li.task { list-style: none; }
@media print { pre { white-space: pre-wrap; } }
""".strip()


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
    parts = [f'<article>\n<h1 dir="auto">{escape(chat.display_title)}</h1>\n<p><time>{moment(chat.created)}</time></p>']
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
        text = f'<p class="typed" dir="auto">{escape(message.text)}</p>' if message.text else ""
    else:
        reasoning, answer = split_reasoning(message.text)
        text = _thought(message, reasoning) + parser.render(answer)
    return f'<section class="{message.role.value}">\n<b>{name}</b>\n<div>{files}{text}</div>{note}\n</section>'


def _thought(message: ChatMessage, reasoning: str) -> str:
    """What a model thought before it answered, folded as in the window."""
    if not reasoning.strip():
        return ""
    words = escape(reasoning.strip())
    return f'<details class="thought"><summary>{thought_words(message)}</summary><p class="thoughts" dir="auto">{words}</p></details>\n'

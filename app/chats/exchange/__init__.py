"""Chats in and out: other programs' exports become chats of ours, and ours become Markdown, JSON, HTML. Free of Qt."""

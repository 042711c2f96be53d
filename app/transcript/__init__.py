"""What was said: Markdown that streams, in one document a chat."""

"""Chats without Qt: the model, the book that changes it, the store behind it, and the answers on their way."""

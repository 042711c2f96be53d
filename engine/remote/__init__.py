"""Engines elsewhere: any server with an OpenAI-compatible API, behind the same interface as the engine in this process."""

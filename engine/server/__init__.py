"""An OpenAI-compatible HTTP API over an engine: off unless somebody starts it, and closed to everyone but them.

`ApiServer` (serving.py) opens and closes it; `omnibus serve` (cli.py) is the command. Nothing in here is imported by the engine, and
starlette and uvicorn only by what needs them.
"""

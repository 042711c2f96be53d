"""What a server offers: its list of models, and the one of them that is meant."""

from __future__ import annotations

import json
from dataclasses import dataclass

import httpx2

from engine.remote import wire
from engine.remote.reading import body_of_answer
from engine.types import EngineError, Sentence


@dataclass(frozen=True, slots=True)
class Offered:
    """A server's model; `context` in tokens, 0 where the server does not tell."""

    name: str
    context: int


async def ask_models(client: httpx2.AsyncClient, url: str, host: str, wanted: str) -> Offered:
    """The model called `wanted`, or with "" the first one. Raises EngineError: those of wire.py, "remote_model", "remote_busy"."""
    raw = b""
    try:
        async with client.stream("GET", f"{url}/models") as answer:
            if answer.status_code != 200:
                raise await wire.refusal(answer)
            raw = await body_of_answer(answer)
        content = json.loads(raw)
        models = [item for item in content["data"] if isinstance(item, dict) and isinstance(item.get("id"), str)]
    except wire.Later as later:
        raise EngineError("remote_busy", Sentence("{0}: {1}.", host, later.words), "It is asked again.") from later
    except httpx2.HTTPError as error:
        raise wire.lost(error, host) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise wire.nonsense(raw[:80].decode("utf-8", "replace")) from error
    names = [item["id"] for item in models]
    if wanted and wanted not in names and names:
        known = ", ".join(names[:5])
        raise EngineError("remote_model", Sentence("The server has no model {0!r}.", wanted), Sentence("It has {0}.", known))
    if not names and not wanted:
        raise EngineError("remote_model", "The server offers no model.", "Load one there, or name one.")
    name = wanted or names[0]
    chosen = next((item for item in models if item["id"] == name), {})
    meta = chosen.get("meta") if isinstance(chosen.get("meta"), dict) else {}
    context = chosen.get("max_model_len") or meta.get("n_ctx") or meta.get("n_ctx_train") or 0  # type: ignore[union-attr]
    return Offered(name, context if isinstance(context, int) else 0)

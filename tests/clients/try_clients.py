"""Real clients against a running `omnibus serve`: what they send and what they make of the answers, client by client.

Not part of the test suite, as the clients and their many dependencies are not installed with it. In an environment that has some of
them (pip install openai llm litellm langchain-openai):

    python tests/clients/try_clients.py --url http://127.0.0.1:PORT/v1 --key TOKEN

Prints one line a check; a client that is not installed is left out. Ends with 1 if a check failed.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import Any

ASK = [{"role": "user", "content": "What is the weather in Bern?"}]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "Tells the weather", "parameters": SCHEMA}}
FLAT = {"type": "function", "name": "weather", "description": "Tells the weather", "parameters": SCHEMA, "strict": True}
Check = Callable[[str, str], object]


def openai_checks() -> dict[str, Check]:
    import openai

    def client(url: str, key: str) -> Any:
        return openai.OpenAI(base_url=url, api_key=key, max_retries=0, timeout=120)

    def chat(url: str, key: str, **more: Any) -> Any:
        return client(url, key).chat.completions.create(**{"model": "default", "messages": ASK, "max_completion_tokens": 60, **more})

    def plain(url: str, key: str) -> None:
        got = chat(url, key, n=2, seed=1)
        assert len(got.choices) == 2 and got.choices[0].message.content and got.usage.completion_tokens > 0

    def stream(url: str, key: str) -> None:
        chunks = list(chat(url, key, stream=True, stream_options={"include_usage": True}))
        assert chunks[0].choices[0].delta.role == "assistant" and chunks[-1].usage.total_tokens > 0
        assert any(chunk.choices and chunk.choices[0].finish_reason for chunk in chunks)

    def logprobs(url: str, key: str) -> None:
        got = chat(url, key, logprobs=True, top_logprobs=3).choices[0]
        assert len(got.logprobs.content[0].top_logprobs) == 3
        old = client(url, key).completions.create(model="default", prompt="One two", max_tokens=3, logprobs=2, echo=True)
        assert old.choices[0].logprobs.token_logprobs[0] is None and len(old.choices[0].logprobs.tokens) > 3

    def tools(url: str, key: str) -> None:
        message = chat(url, key, tools=[WEATHER], tool_choice="required").choices[0].message
        arguments = message.tool_calls[0].function.arguments
        assert set(json.loads(arguments)) == {"city", "days"}
        answered = [*ASK, message.model_dump(), {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "rain"}]
        assert chat(url, key, tools=[WEATHER], messages=answered).choices[0].finish_reason

    def streamed_tools(url: str, key: str) -> None:
        named = {"type": "function", "function": {"name": "weather"}}
        with client(url, key).chat.completions.stream(
            model="default", messages=ASK, tools=[WEATHER], tool_choice=named, max_completion_tokens=60
        ) as events:
            final = events.until_done().get_final_completion()
        assert set(json.loads(final.choices[0].message.tool_calls[0].function.arguments)) == {"city", "days"}

    def schema(url: str, key: str) -> None:
        form = {"type": "json_schema", "json_schema": {"name": "w", "strict": True, "schema": SCHEMA}}
        assert set(json.loads(chat(url, key, response_format=form).choices[0].message.content)) == {"city", "days"}

    def responses(url: str, key: str) -> None:
        first = client(url, key).responses.create(model="default", input="Say hello.", max_output_tokens=20, instructions="Be brief.")
        assert first.output_text
        more = client(url, key).responses.create(model="default", input="Again.", max_output_tokens=9, previous_response_id=first.id)
        assert more.usage.input_tokens > first.usage.input_tokens - 10

    def streamed_responses(url: str, key: str) -> None:
        with client(url, key).responses.stream(model="default", input="Say hello.", max_output_tokens=300) as events:
            kinds = [event.type for event in events]
            final = events.get_final_response()
        assert kinds[-1] in ("response.completed", "response.incomplete") and final.output_text

    def responses_tools(url: str, key: str) -> None:
        got = client(url, key).responses.create(model="default", input="Rain?", tools=[FLAT], tool_choice="required", max_output_tokens=60)
        assert got.output[0].type == "function_call" and set(json.loads(got.output[0].arguments)) == {"city", "days"}

    def embeddings(url: str, key: str) -> None:
        texts = ["The cat sat on the mat.", "A cat is sitting on a rug.", "Interest rates rose again."]
        got = client(url, key).embeddings.create(model="default", input=texts)  # as base64, which the client asks for by itself
        plain = client(url, key).embeddings.create(model="default", input=texts, encoding_format="float", dimensions=64)
        alike, other = (sum(map(float.__mul__, got.data[0].embedding, got.data[place].embedding)) for place in (1, 2))
        assert alike > other and len(plain.data[0].embedding) == 64 and got.usage.total_tokens > 10

    def errors(url: str, key: str) -> None:
        for wrong, kind in ((key + "x", openai.AuthenticationError), (key, openai.BadRequestError)):
            try:
                chat(url, wrong, temperature=9)
            except kind as error:
                assert error.body["message"]
            else:
                raise AssertionError("no error")

    def models(url: str, key: str) -> None:
        assert client(url, key).models.list().data[0].id

    def at_once(url: str, key: str) -> None:
        async def run() -> list[Any]:
            async with openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=5, timeout=300) as many:
                asks = [many.chat.completions.create(model="default", messages=ASK, max_tokens=4, stream=True) for _ in range(40)]
                streams = await asyncio.gather(*asks)
                return [[chunk async for chunk in stream] for stream in streams]

        assert all(chunks[-1].choices[0].finish_reason for chunks in asyncio.run(run()))

    found = (plain, stream, logprobs, tools, streamed_tools, schema, responses, streamed_responses, responses_tools, embeddings)
    return {check.__name__: check for check in (*found, errors, models, at_once)}


def litellm_checks() -> dict[str, Check]:
    def plain(url: str, key: str) -> None:
        import litellm

        got = litellm.completion("openai/default", ASK, api_base=url, api_key=key, max_tokens=8)
        assert got.choices[0].message.content

    def stream(url: str, key: str) -> None:
        import litellm

        chunks = list(litellm.completion("openai/default", ASK, api_base=url, api_key=key, max_tokens=8, stream=True))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    def tools(url: str, key: str) -> None:
        import litellm

        got = litellm.completion("openai/default", ASK, api_base=url, api_key=key, max_tokens=60, tools=[WEATHER], tool_choice="required")
        assert set(json.loads(got.choices[0].message.tool_calls[0].function.arguments)) == {"city", "days"}

    return {"plain": plain, "stream": stream, "tools": tools}


def langchain_checks() -> dict[str, Check]:
    def model(url: str, key: str) -> Any:
        from langchain_openai import ChatOpenAI

        return ChatOpenAI(model="default", base_url=url, api_key=key, max_tokens=60)  # type: ignore[call-arg]

    def plain(url: str, key: str) -> None:
        assert model(url, key).invoke("Say hello.").content

    def stream(url: str, key: str) -> None:
        assert "".join(str(chunk.content) for chunk in model(url, key).stream("Say hello."))

    def structured(url: str, key: str) -> None:
        for method in ("json_schema", "function_calling"):
            got = model(url, key).with_structured_output({"title": "weather", **SCHEMA}, method=method).invoke("Rain in Bern?")
            assert set(got) == {"city", "days"}

    def tools(url: str, key: str) -> None:
        got = model(url, key).bind_tools([WEATHER], tool_choice="any").invoke("Rain in Bern?")
        assert set(got.tool_calls[0]["args"]) == {"city", "days"}

    return {"plain": plain, "stream": stream, "structured": structured, "tools": tools}


def llm_checks() -> dict[str, Check]:
    def run(url: str, key: str, *options: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "extra-openai-models.yaml"), "w", encoding="utf-8") as file:
                file.write(f"- model_id: omnibus\n  model_name: default\n  api_base: {url}\n  api_key_name: omnibus\n")
            command = [os.path.join(os.path.dirname(sys.executable), "llm"), "-m", "omnibus", "--key", key, *options, "Say hello."]
            environment = {**os.environ, "LLM_USER_PATH": folder}
            return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=120).stdout

    def stream(url: str, key: str) -> None:
        assert run(url, key, "-o", "max_tokens", "12").strip()

    def plain(url: str, key: str) -> None:
        assert run(url, key, "--no-stream", "-o", "max_tokens", "12").strip()

    return {"plain": plain, "stream": stream}


CLIENTS = {"openai": openai_checks, "litellm": litellm_checks, "langchain_openai": langchain_checks, "llm": llm_checks}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--url", required=True, help="base URL, with /v1")
    parser.add_argument("--key", required=True)
    parser.add_argument("--client", choices=CLIENTS, help="this one only")
    args = parser.parse_args()
    failed = 0
    for name, make in CLIENTS.items():
        if (args.client and name != args.client) or importlib.util.find_spec(name) is None:
            continue
        for check_name, check in make().items():
            try:
                check(args.url, args.key)
            except Exception:
                failed += 1
                print(f"{name:18} {check_name:20} FAILED\n{traceback.format_exc(limit=-4)}", flush=True)
            else:
                print(f"{name:18} {check_name:20} ok", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

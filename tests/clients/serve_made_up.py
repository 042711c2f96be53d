"""Our server over a made-up model, for tools that send it a great deal: it answers letters at once, and no model is loaded.

Not part of the test suite. In an environment of ours, and with the tools from another one (pip install schemathesis guidellm):

    python tests/clients/serve_made_up.py --port 18250 --token T

    st run http://127.0.0.1:18250/openapi.json -H "Authorization: Bearer T" --phases coverage,fuzzing --max-examples 60 \\
        --checks not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,ignored_auth
    guidellm run --backend kind=openai_http,target=http://127.0.0.1:18250,model=default,api_key=T --profile kind=concurrent,streams=64 \\
        --constraint kind=max_requests,count=500 --tokenizer kind=hf_auto,model=FOLDER \\
        --data kind=synthetic_text,prompt_tokens=64,output_tokens=64

Serves until it is interrupted. An answer without `max_tokens` fills the context, so where server and tool share a core, `--context 120`
keeps schemathesis within its ten seconds a request.

Seen, server and tool on one core of a busy machine: schemathesis 1,765 cases over all twelve operations without an issue or a request given
up; with OpenAI's own document, cut to the paths that are here (`--url http://127.0.0.1:18250/v1`), 772 cases without a 5xx, and one answer
that it does not describe: vectors as base64, which its own clients ask for. guidellm 150 requests of 64 letters, 32 at once, none failed.
"""

from __future__ import annotations

import argparse
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.engine.made_up_model import PATIENCE, make_engine
from tests.engine.server.made_up_server import ServedWorkshop, make_server


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--token", required=True)
    parser.add_argument("--seats", type=int, default=16)
    parser.add_argument("--context", type=int, default=2000)
    args = parser.parse_args()
    engine = make_engine(ServedWorkshop(context=args.context), seats=args.seats)
    engine.wait_ready(PATIENCE)
    server = make_server(engine, args.token, port=args.port)
    print(f"ready at {server.url}", flush=True)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        print("closing", flush=True)
    server.stop(PATIENCE)
    engine.close(PATIENCE)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Looks for models on a Hugging Face hub: what there is, in which sizes, under which terms, and the files that belong to each.

Owns the asking and the words; `transfer.py` fetches. The network is touched only inside these calls, which block: never call them from a
window's thread. huggingface_hub is otherwise kept offline in this process.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from engine.catalog import hub_words
from engine.types import ModelError, Sentence

RESULTS = 30
MOST_FILES = 2000
RETRIES = 1  # after a second, of a search that nobody answers

# Files of a safetensors repository that a model needs; the rest (pickles, other formats, pictures) stays there.
_WANTED = ("config.json", "generation_config.json", "chat_template.jinja", "model.safetensors.index.json")
_TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "vocab.txt",
)
_WANTED_ALL = frozenset((*_WANTED, *_TOKENIZERS, "added_tokens.json", "spiece.model", "tekken.json"))


@dataclass(frozen=True, slots=True)
class HubModel:
    """One repository. `gated` means that its owner's terms must be accepted on the web first; `gguf` that it holds GGUF files."""

    repository: str
    downloads: int
    likes: int
    size: str  # parameters, as people say it; may be empty
    licence: str
    gated: bool
    gguf: bool


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file to fetch. `sha256` for large files, `blob` (git's SHA-1 of it) for small ones; either may be empty."""

    name: str
    size: int
    sha256: str = ""
    blob: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """One way to have a model: a single GGUF file, or the safetensors folder.

    Attributes:
        revision: the commit, so that a file that is resumed another day is the same file.
        word: "Small", "Balanced" or "Best".
        kind: the quantisation ("Q4_K_M"), or "safetensors".
    """

    repository: str
    revision: str
    word: str
    kind: str
    files: tuple[HubFile, ...]
    licence: str
    gated: bool

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)

    @property
    def name(self) -> str:
        """Of the folder it becomes."""
        return self.repository.replace("/", "--")


class Hub:
    """A hub's shop window.

    Args:
        endpoint: its address; None takes huggingface.co, or HF_ENDPOINT's.
        token: None takes the one that huggingface_hub knows, if there is one.
    """

    def __init__(self, endpoint: str | None = None, token: str | None = None) -> None:
        from huggingface_hub import HfApi, constants, get_token

        _be_impatient()
        self.endpoint = (endpoint or constants.ENDPOINT).rstrip("/")
        self.token = token or get_token()
        self._api: Any = HfApi(endpoint=self.endpoint, token=self.token or False)

    def search(self, text: str, limit: int = RESULTS) -> list[HubModel]:
        """Chat models whose name holds `text`, those fetched most first.

        Raises:
            ModelError: "no_network", "hub_busy", "hub_failed".
        """
        fields = ["downloads", "likes", "gated", "tags", "safetensors", "gguf"]
        with _asking(self.endpoint):
            found = list(self._api.list_models(search=text, pipeline_tag="text-generation", sort="downloads", limit=limit, expand=fields))
        return [_model(info) for info in found]

    def offers(self, repository: str) -> list[Offer]:
        """The ways to have a model, Small first: of each quality the best-liked file.

        Raises:
            ModelError: "not_on_hub", "gated", "nothing_to_load", "no_network", …
        """
        with _asking(self.endpoint, repository):
            info = self._api.model_info(repository, files_metadata=True)
        files = [_file(sibling) for sibling in (info.siblings or [])[:MOST_FILES]]
        terms = _licence(info)
        gated = bool(getattr(info, "gated", False))
        chosen: dict[str, tuple[str, tuple[HubFile, ...]]] = {}
        for file in files:
            kind = hub_words.quantisation(file.name)
            word = hub_words.quality(kind)
            if not file.name.endswith(".gguf") or hub_words.is_part(file.name) or not word or "mmproj" in file.name.lower():
                continue
            if word not in chosen or hub_words.preference(kind) < hub_words.preference(chosen[word][0]):
                chosen[word] = (kind, (file,))
        folder = _folder_files(files)
        if folder and hub_words.BEST not in chosen:
            chosen[hub_words.BEST] = ("safetensors", folder)
        if not chosen:
            sentence = Sentence("{0} has no safetensors and no single GGUF file that Omnibus could load.", repository)
            raise ModelError("nothing_to_load", sentence, "Look for another upload of the same model.")
        order = [word for word in hub_words.CLASSES if word in chosen]
        return [Offer(repository, str(info.sha), word, *chosen[word], terms, gated) for word in order]


def _model(info: Any) -> HubModel:
    tensors = getattr(info, "safetensors", None)
    gguf = getattr(info, "gguf", None)
    total = getattr(tensors, "total", None) or (gguf or {}).get("total")
    tags = info.tags or []
    return HubModel(
        repository=info.id,
        downloads=info.downloads or 0,
        likes=info.likes or 0,
        size=hub_words.parameters(total),
        licence=_licence(info),
        gated=bool(info.gated),
        gguf=bool(gguf) or "gguf" in tags,
    )


def _licence(info: Any) -> str:
    name = next((tag.partition(":")[2] for tag in info.tags or [] if tag.startswith("license:")), None)
    return hub_words.licence(name)


def _file(sibling: Any) -> HubFile:
    lfs = getattr(sibling, "lfs", None)
    sha256 = (lfs.get("sha256") if isinstance(lfs, dict) else getattr(lfs, "sha256", None)) or ""
    return HubFile(sibling.rfilename, int(sibling.size or 0), str(sha256), "" if sha256 else str(sibling.blob_id or ""))


def _folder_files(files: list[HubFile]) -> tuple[HubFile, ...]:
    """The files of a safetensors model; empty if it cannot be loaded from them. Only plain names: nothing leaves its folder."""
    top = [file for file in files if "/" not in file.name and "\\" not in file.name and not file.name.startswith(".")]
    names = {file.name for file in top}
    weights = [file for file in top if file.name.endswith(".safetensors")]
    shards = [file for file in weights if file.name.startswith("model")]
    if "config.json" not in names or not shards:
        return ()
    return tuple(file for file in top if file.name in _WANTED_ALL or file in shards)


def _be_impatient() -> None:
    """WORKAROUND for huggingface_hub 2, whose search tries five more times, for 23 s, before it says that nobody answers. A person who
    looks for a model is told soon, and can ask again. Should it stop looking its function up here, it waits as before."""
    from huggingface_hub.utils import _pagination

    again = getattr(_pagination, "http_backoff", None)
    if again is not None and not isinstance(again, partial):
        _pagination.http_backoff = partial(again, max_retries=RETRIES)


_online = threading.Lock()
_asked = 0


@contextmanager
def _asking(endpoint: str, repository: str = "") -> Iterator[None]:
    """Let huggingface_hub onto the network, and turn what goes wrong there into sentences."""
    from huggingface_hub import constants
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    global _asked
    with _online:
        if _asked == 0:
            _asking.before = constants.HF_HUB_OFFLINE  # type: ignore[attr-defined]
            constants.HF_HUB_OFFLINE = False
        _asked += 1
    try:
        yield
    except GatedRepoError as error:
        raise gated(endpoint, repository) from error
    except (RepositoryNotFoundError, HFValidationError) as error:  # the latter for what can be no model's name
        sentence = Sentence("There is no model {0!r} on the hub, or it is private.", repository)
        raise ModelError("not_on_hub", sentence, "Check the name; for a private one set HF_TOKEN.") from error
    except HfHubHTTPError as error:
        raise refused(getattr(getattr(error, "response", None), "status_code", 0), endpoint, repository) from error
    except (OSError, ValueError) as error:  # what its HTTP client raises is an OSError or carries one
        raise unreachable(endpoint, error) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2"):
            raise unreachable(endpoint, error) from error
        raise
    finally:
        with _online:
            _asked -= 1
            if _asked == 0:
                constants.HF_HUB_OFFLINE = _asking.before  # type: ignore[attr-defined]


def gated(endpoint: str, repository: str) -> ModelError:
    sentence = Sentence("{0} is given only to those who accepted its terms.", repository)
    return ModelError(
        "gated", sentence, Sentence("Accept them at {0}/{1}, then set HF_TOKEN to a token of your account.", endpoint, repository)
    )


def unreachable(endpoint: str, error: BaseException) -> ModelError:
    """Why nobody answered, as far as the error and what it was raised from tell."""
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLError) or "CERTIFICATE_VERIFY_FAILED" in str(cause):
            sentence = Sentence("The certificate of the model hub at {0} is not trusted on this machine.", endpoint)
            return ModelError("bad_certificate", sentence, "Where a company inspects traffic, set SSL_CERT_FILE to its certificates.")
        if isinstance(cause, socket.gaierror):
            sentence = Sentence("The name of the model hub at {0} cannot be looked up.", endpoint)
            return ModelError("no_network", sentence, "Connect to the network, or check HF_ENDPOINT.")
        if isinstance(cause, ConnectionRefusedError):
            sentence = Sentence("Nobody answers at the model hub's address, {0}.", endpoint)
            return ModelError("no_network", sentence, "Check HF_ENDPOINT and a proxy's settings, or try again later.")
    return ModelError(
        "no_network", Sentence("The model hub at {0} cannot be reached ({1}).", endpoint, type(error).__name__), "Connect to the network."
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it was raised from, the outermost first."""
    seen: BaseException | None = error
    for _ in range(20):
        if seen is None:
            return
        yield seen
        seen = seen.__cause__ or seen.__context__


def refused(status: int, endpoint: str, what: str) -> ModelError:
    """The hub's answer to a request that it did not serve."""
    if status == 401:
        return ModelError(
            "hub_login", Sentence("The hub wants to know who asks for {0}.", what or "this"), "Set HF_TOKEN to a token of your account."
        )
    if status == 403:
        return gated(endpoint, what)
    if status == 404:
        return ModelError("not_on_hub", Sentence("The hub has no {0}.", what), "Check the name.")
    if status == 407:
        sentence = "The proxy on the way to the model hub wants to know who asks."
        return ModelError("proxy_login", sentence, "Set HTTPS_PROXY to http://name:password@proxy:port.")
    if status == 429:
        return ModelError("hub_busy", "The hub asks to be asked less often.", "Wait a few minutes, or set HF_TOKEN.")
    return ModelError("hub_failed", Sentence("The hub at {0} answered with status {1}.", endpoint, status), "Try again later.")

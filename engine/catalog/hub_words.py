"""Words for what lies on a model hub: how good a quantisation is, what a licence allows, how large a model is.

Pure tables and small functions over names; knows no network. What cannot be told from a name is said to be unknown, never guessed.
"""

from __future__ import annotations

import re

SMALL, BALANCED, BEST = "Small", "Balanced", "Best"

# llama.cpp's quantisations by what a person notices, the one to prefer first; sizes are bits a weight, from its own tables.
CLASSES: dict[str, tuple[str, ...]] = {
    SMALL: ("Q3_K_M", "Q3_K_L", "IQ3_M", "Q3_K_S", "IQ3_S", "IQ3_XS", "IQ3_XXS", "Q2_K", "Q2_K_L", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS"),
    BALANCED: ("Q4_K_M", "Q5_K_M", "Q4_K_L", "Q5_K_S", "Q4_K_S", "IQ4_NL", "IQ4_XS", "Q4_1", "Q4_0", "Q5_1", "Q5_0", "MXFP4"),
    BEST: ("Q8_0", "Q6_K", "Q6_K_L", "BF16", "F16", "F32"),
}
_QUANTISATION = re.compile(
    r"(?:^|[-_.])(I?Q\d(?:_(?:K(?:_(?:XL|XS|L|M|S))?|NL|XXS|XS|S|M|\d))?|BF16|FP?16|FP?32|MXFP4)(?=$|[-_.])", re.IGNORECASE
)
_PART = re.compile(r"-\d{5}-of-\d{5}$")

LICENCES = {
    "apache-2.0": "free, also for business (Apache 2.0)",
    "mit": "free, also for business (MIT)",
    "bsd-3-clause": "free, also for business (BSD)",
    "cc0-1.0": "public domain",
    "cc-by-4.0": "free if its authors are named (CC BY)",
    "cc-by-sa-4.0": "free if shared alike (CC BY-SA)",
    "cc-by-nc-4.0": "not for business (CC BY-NC)",
    "cc-by-nc-sa-4.0": "not for business (CC BY-NC-SA)",
    "gemma": "Gemma terms of use",
    "other": "terms of its own",
}


def quantisation(file_name: str) -> str:
    """The quantisation that a GGUF file's name tells ("Q4_K_M"); empty if it tells none."""
    found = _QUANTISATION.findall(file_name.removesuffix(".gguf"))
    return found[-1].upper().replace("FP16", "F16").replace("FP32", "F32") if found else ""


def quality(kind: str) -> str:
    """Small, Balanced or Best; empty for a quantisation that is not in the tables."""
    return next((word for word, kinds in CLASSES.items() if kind in kinds), "")


def preference(kind: str) -> int:
    """Place within its class; lower is preferred."""
    return next((kinds.index(kind) for kinds in CLASSES.values() if kind in kinds), 99)


def is_part(file_name: str) -> bool:
    """Whether a GGUF file is one of several that make a model."""
    return bool(_PART.search(file_name.removesuffix(".gguf")))


def licence(name: str | None) -> str:
    """What a licence means to a person; its name where that is not known."""
    if not name:
        return "licence not stated"
    key = name.lower()
    if key.startswith("llama"):
        return f"Meta's community licence ({name})"
    return LICENCES.get(key, name)


def parameters(count: int | None) -> str:
    """A model's size as people say it."""
    if not count:
        return ""
    return f"{count / 1e9:.1f} B".replace(".0 B", " B") if count >= 1e9 else f"{count / 1e6:.0f} M"

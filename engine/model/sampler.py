"""Draws one token a row from a batch of logits, on the device, without a sort and without a loop over rows.

Owns the per-request counts that penalties need and the noise. The noise of token v at position p under seed s is a pure function of
(s, p, v): batch mates, batch size and the way a prompt was cut cannot change a draw. A token is drawn as argmax(logit + Gumbel noise),
which is an exact draw from the softmax (Gumbel-max; Maddison et al., 2014), so it needs no normalisation and no running sum.

Top-k, top-p and min-p are exact: the 256 best candidates are sorted, and their share of the whole is known from one log-sum-exp over
the vocabulary. A row whose cut lies beyond them is drawn again over 8,192, then over a full sort; its noise is the same, so is its token.

Order: bias, penalties, held-back ids or the answer's form, temperature, top-k, top-p (of what top-k left), min-p. Log-probabilities
are of the model's own logits, before any of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from engine.model.draws import NativeDraws, as_tensor, keys_of, settings_of
from engine.model.logprobs import tell
from engine.model.upload import put, upload
from engine.scheduling.plan import Row, Sampled
from engine.scheduling.request import RequestState
from engine.types import ErrorInfo, TokenLogprob

CANDIDATES = (256, 8192)  # how far a row looks for its cut, before all of the vocabulary is sorted
_BAD, _UNCOVERED = -1, -2  # token numbers that mean something else


@dataclass(slots=True)
class _Counts:
    """How often each token stands in one request, kept up to date as it grows. `place` maps a token to its index in the arrays."""

    seen: int = 0
    place: dict[int, int] = field(default_factory=dict)
    answer: list[int] = field(default_factory=list)  # occurrences in the answer alone

    def extend(self, tokens: Sequence[int], prompt_len: int, end: int) -> None:
        for position in range(self.seen, end):
            token = tokens[position]
            at = self.place.setdefault(token, len(self.answer))
            if at == len(self.answer):
                self.answer.append(0)
            self.answer[at] += position >= prompt_len
        self.seen = end


class Sampler:
    """One per runner.

    Args:
        eos_ids: ids that end an answer by themselves; min_tokens holds them back.

    Attributes:
        native: draw with our own kernel, which must be there (see `engine.model.native`).
    """

    def __init__(self, eos_ids: Iterable[int]) -> None:
        self._eos = tuple(sorted(eos_ids))
        self.native = False
        self._draw_natively = NativeDraws()
        self._counts: dict[str, _Counts] = {}
        self._scratch = torch.empty(0)
        self._plain: list[RequestState] = []  # drawn for last, and nothing but temperature and cuts shaped it

    def forget(self, request_id: str) -> None:
        self._counts.pop(request_id, None)
        self._draw_natively.forget()
        self._plain = []

    def sample(self, logits: torch.Tensor, rows: Sequence[Row]) -> list[Sampled]:
        """One outcome a row. `logits` [S, vocabulary], any float dtype, is used up.

        The position of a draw is that of the token it makes: row.start + row.count.
        """
        if not rows:
            return []
        raw = logits if logits.dtype is torch.float32 else logits.float()
        riders = [row.request for row in rows]
        if riders == self._plain or all(map(_plain, rows)):
            self._plain = riders
            return [Sampled(token) if token != _BAD else not_a_number() for token in self._draw(raw, rows)]
        telling = [place for place, row in enumerate(rows) if row.request.params.logprobs is not None]
        own = raw.index_select(0, put(telling, raw.device)) if telling else None  # a copy, before the logits are shaped
        shaped = self._shape(raw, rows)
        tokens = self._draw(shaped, rows)
        details: dict[int, TokenLogprob] = {}
        if own is not None:
            counts = [rows[place].request.params.logprobs or 0 for place in telling]
            details = dict(zip(telling, tell(own, [tokens[place] for place in telling], counts), strict=True))
        return [_outcome(found, details.get(place)) for place, found in enumerate(tokens)]

    def _draw(self, shaped: torch.Tensor, rows: Sequence[Row]) -> list[int]:
        return self._draw_natively(shaped, rows) if self.native else self._draw_all(shaped, rows)

    def _draw_all(self, shaped: torch.Tensor, rows: Sequence[Row]) -> list[int]:
        """Tokens, or _BAD, in torch's own operations, on any device."""
        best, token = _best(shaped)
        bad = ~best.isfinite()
        drawn = [place for place, row in enumerate(rows) if not row.request.params.greedy]
        if drawn:
            settings = _Settings.of([rows[place] for place in drawn], shaped.device)
            at = put(drawn, shaped.device)
            token = token.index_copy(0, at, _draw(self._scale(shaped, at, settings), settings, CANDIDATES[0]))
        tokens = torch.where(bad, _BAD, token).tolist()
        for candidates in (*CANDIDATES[1:], shaped.shape[1]):
            again = [place for place in range(len(rows)) if tokens[place] == _UNCOVERED]
            if not again:
                break
            settings = _Settings.of([rows[place] for place in again], shaped.device)
            scaled = self._scale(shaped, put(again, shaped.device), settings)
            for place, found in zip(again, _draw(scaled, settings, candidates).tolist(), strict=True):
                tokens[place] = found
        return tokens

    def _scale(self, shaped: torch.Tensor, at: torch.Tensor, settings: _Settings) -> torch.Tensor:
        """Rows `at`, divided by their temperatures, in a buffer kept from step to step: fresh pages cost more than the division."""
        size = len(at) * shaped.shape[1]
        if self._scratch.numel() < size or self._scratch.device != shaped.device:
            self._scratch = torch.empty(size, device=shaped.device)
        scaled = self._scratch[:size].view(len(at), -1)
        torch.index_select(shaped, 0, at, out=scaled)
        return scaled.div_(settings.temperature)

    # ----------------------------------------------------------------------------------------------- biases and penalties

    def _shape(self, raw: torch.Tensor, rows: Sequence[Row]) -> torch.Tensor:
        """Logits with bias, penalties, held-back ids and forms, in place. Work is done on the touched entries only."""
        size = raw.shape[1]
        bias_at: list[int] = []
        bias: list[float] = []
        held: list[int] = []
        penal: list[tuple[np.ndarray, ...]] = []
        forms: list[tuple[int, np.ndarray]] = []
        for place, row in enumerate(rows):
            params, request = row.request.params, row.request
            end = row.start + row.count
            for ident, value in params.logit_bias:
                if 0 <= ident < size:
                    bias_at.append(place * size + ident)
                    bias.append(value)
            if request.form is not None:
                forms.append((place, request.form.mask()))
            elif params.min_tokens > end - request.prompt_len:  # a form has its own say about where an answer may end
                held += [place * size + ident for ident in {*self._eos, *params.stop_token_ids} if 0 <= ident < size]
            if params.repetition_penalty != 1 or params.presence_penalty or params.frequency_penalty:
                counts = self._counts.setdefault(request.id, _Counts())
                counts.extend(request.tokens, request.prompt_len, end)
                ids = np.fromiter(counts.place, np.int64, len(counts.place))
                answer = np.array(counts.answer, dtype=np.float32)
                fits = ids < size
                ids, answer = ids[fits], answer[fits]
                less = params.frequency_penalty * answer + params.presence_penalty * (answer > 0)
                penal.append((place * size + ids, np.full(len(ids), params.repetition_penalty, np.float32), less.astype(np.float32)))
        if not (bias or held or penal or forms):
            return raw
        shaped = raw
        flat = shaped.view(-1)
        device = raw.device
        if bias:
            flat.index_add_(0, put(bias_at, device), put(bias, device, flat.dtype))
        if penal:
            at, factor, less = (upload(torch.from_numpy(np.concatenate(part)), device) for part in zip(*penal, strict=True))
            value = flat.index_select(0, at)
            flat.index_copy_(0, at, torch.where(value > 0, value / factor, value * factor) - less)
        if held:
            flat.index_fill_(0, put(held, device), float("-inf"))
        for place, mask in forms:
            allowed = upload(torch.from_numpy(mask[:size]), device)
            shaped[place, : len(mask)].masked_fill_(~allowed, float("-inf"))
            shaped[place, len(mask) :] = float("-inf")
        return shaped


# ------------------------------------------------------------------------------------------------------------- drawing


@dataclass(frozen=True, slots=True)
class _Settings:
    """Per-row settings as [R, 1] tensors; `keys` [R, 2] int32 is what the noise depends on besides the token."""

    temperature: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    log_min_p: torch.Tensor
    keys: torch.Tensor
    open: tuple[int, ...]  # places of rows that cut nothing off

    @classmethod
    def of(cls, rows: Sequence[Row], device: torch.device) -> _Settings:
        table, keys = settings_of(rows), keys_of(rows)
        floats = upload(torch.from_numpy(table), device)
        cut_nothing = (table[:, 1] >= 1) & np.isneginf(table[:, 2]) & (table[:, 3] == 0)
        return cls(
            floats[:, 0:1],
            put([[row.request.params.top_k] for row in rows], device),
            floats[:, 1:2],
            floats[:, 2:3],
            upload(as_tensor(keys), device),
            tuple(np.flatnonzero(cut_nothing).tolist()),
        )

    def select(self, places: Sequence[int]) -> _Settings:
        at = put(places, self.keys.device)
        return _Settings(
            self.temperature.index_select(0, at),
            self.top_k.index_select(0, at),
            self.top_p.index_select(0, at),
            self.log_min_p.index_select(0, at),
            self.keys.index_select(0, at),
            tuple(new for new, old in enumerate(places) if old in self.open),
        )


def _draw(scaled: torch.Tensor, settings: _Settings, candidates: int) -> torch.Tensor:
    """Tokens [R] int64 for temperature-scaled logits [R, vocabulary], which are used up; _UNCOVERED where so many candidates do not
    reach the cut."""
    rows, size = scaled.shape
    if len(settings.open) == rows:
        return _draw_open(scaled, settings)
    if settings.open:
        cut = [place for place in range(rows) if place not in settings.open]
        token = torch.empty(rows, dtype=torch.int64, device=scaled.device)
        for places in (list(settings.open), cut):
            at = put(places, scaled.device)
            token[at] = _draw(scaled.index_select(0, at), settings.select(places), candidates)
        return token
    values, ids = scaled.topk(candidates, dim=-1) if candidates < size else scaled.sort(-1, descending=True)
    log_sum = values[:, :1] + _sum(scaled.sub_(values[:, :1]).exp_()).log_()
    if candidates >= size:
        return _draw_ranked(values, ids, log_sum, settings)[0]
    token, kept, whole = _draw_ranked(values, ids, log_sum, settings)
    # Both cuts keep a prefix of the falling order, so a candidate that was cut proves that nothing beyond the candidates is kept. A top-k
    # that reaches further than the candidates also changes the whole that top-p's shares are of, which is then unknown.
    was_cut = kept < candidates
    within = settings.top_k <= candidates
    covered = torch.where(within, (settings.top_k > 0) | was_cut | (whole >= settings.top_p), was_cut & (settings.top_p >= 1))
    return torch.where(covered.squeeze(1), token, _UNCOVERED)


def _draw_ranked(
    values: torch.Tensor, ids: torch.Tensor, log_sum: torch.Tensor, settings: _Settings
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draw among candidates in falling order [R, K]; `log_sum` [R, 1] is over the vocabulary.

    Returns (token [R], candidates kept [R, 1], share of the whole that all K hold [R, 1]).
    """
    rank = torch.arange(values.shape[1], device=values.device)
    limited = settings.top_k > 0
    keep = ~limited | (rank < settings.top_k)
    log_limited = torch.logsumexp(values.masked_fill(~keep, float("-inf")), -1, keepdim=True)
    share = (values - torch.where(limited, log_limited, log_sum)).exp_()
    running = share.cumsum(-1)
    keep = keep & (running - share < settings.top_p) & (values >= values[:, :1] + settings.log_min_p)
    keep[:, 0] = True
    scores = (values + gumbel(ids, settings.keys)).masked_fill_(~keep, float("-inf"))
    token = ids.gather(1, scores.argmax(-1, keepdim=True)).squeeze(1)
    return token, keep.sum(-1, keepdim=True), running[:, -1:]


def _draw_open(scaled: torch.Tensor, settings: _Settings) -> torch.Tensor:
    """Draw from the whole distribution: noise for every token, no order needed."""
    ids = torch.arange(scaled.shape[1], device=scaled.device, dtype=torch.int32).expand(scaled.shape[0], -1)
    return _best(gumbel(ids, settings.keys).add_(scaled))[1]


def _sum(numbers: torch.Tensor) -> torch.Tensor:
    """Sums [R, 1] of rows [R, N]. One row alone is long enough for torch to cut it among threads, which adds in another order than in
    company; sums of 64 at a time are too short for that."""
    rows, size = numbers.shape
    whole = size // 64 * 64
    parts = numbers[:, :whole].unflatten(1, (-1, 64)).sum(-1) if whole else numbers[:, :0]
    return torch.cat([parts, numbers[:, whole:]], 1).sum(-1, keepdim=True)


def _best(scores: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(largest value [R], its first place [R]) over a vocabulary; not a number if any entry is not.

    A plain maximum with places is 10 times slower on the CPU than one without, so it is taken over 64ths and then within one.
    """
    rows, size = scores.shape
    groups = size // 64
    if groups < 8:
        return scores.max(-1)
    tops = scores[:, : groups * 64].unflatten(1, (groups, 64)).amax(-1)
    if groups * 64 < size:
        tops = torch.cat([tops, scores[:, groups * 64 :].amax(-1, keepdim=True)], 1)
    best, group = tops.max(-1)
    places = (group[:, None] * 64 + torch.arange(64, device=scores.device)).clamp_(max=size - 1)
    within = scores.gather(1, places).argmax(-1, keepdim=True)
    return best, places.gather(1, within).squeeze(1)


# --------------------------------------------------------------------------------------------------------------- noise


def gumbel(ids: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    """Standard Gumbel noise [R, K] float32 for token ids [R, K] under keys [R, 2] int32; a pure function of each (key, id).

    A 32-bit integer hash with two rounds of multiply and xor-shift (constants: Wellons' lowbias32), keyed before each round.
    """
    word = ids.to(torch.int32) * -1640531535  # 0x9E3779B1: spreads neighbouring ids
    _mix(word.bitwise_xor_(keys[:, 0:1]))
    _mix(word.bitwise_xor_(keys[:, 1:2]))
    return _noise_of_words(word)


def _noise_of_words(word: torch.Tensor) -> torch.Tensor:
    """-log(-log(1 - u)) for u in (0, 1) from uniform 32-bit words."""
    # All 32 bits, as a number whose small values are exact: they make the large noise that wins.
    low = (word & 0xFF).float().add_(0.5).mul_(2.0**-8)
    uniform = (word >> 8).bitwise_and_(0xFFFFFF).float().add_(low).mul_(2.0**-24)
    return uniform.clamp_(max=1 - 2.0**-24).neg_().log1p_().neg_().log_().neg_()


def _mix(word: torch.Tensor) -> None:
    """Mix int32 words in place. >> is arithmetic on int32; the mask makes it logical."""
    high = word >> 16
    word.bitwise_xor_(high.bitwise_and_(0xFFFF)).mul_(0x7FEB352D)
    torch.bitwise_right_shift(word, 15, out=high)
    word.bitwise_xor_(high.bitwise_and_(0x1FFFF)).mul_(-2073254261)  # 0x846CA68B
    torch.bitwise_right_shift(word, 16, out=high)
    word.bitwise_xor_(high.bitwise_and_(0xFFFF))


# ------------------------------------------------------------------------------------------------------------ outcomes


def _plain(row: Row) -> bool:
    """Nothing shapes its logits, and no log-probabilities are told: then it is so for every later draw of the request, too."""
    params, request = row.request.params, row.request
    free = request.form is None and not params.logit_bias and params.logprobs is None
    unpunished = params.repetition_penalty == 1 and not params.presence_penalty and not params.frequency_penalty
    return free and unpunished and params.min_tokens <= row.start + row.count - request.prompt_len


def _outcome(token: int, logprob: TokenLogprob | None) -> Sampled:
    return not_a_number() if token == _BAD else Sampled(token, None, logprob)


def not_a_number() -> Sampled:
    """The outcome of a row from which nothing can be drawn."""
    hint = "Send it again; if it happens again, load the model in another dtype (float32 or bfloat16)."
    return Sampled(_BAD, ErrorInfo("nan_logits", "The model's output for this request is not a number.", hint))

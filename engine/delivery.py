"""What the results of a step become: positions booked, tokens turned into text and sent, answers ended that are at their end.

Owns who was ended by a stop string or a form in this step, and whose text could not be made. The core ends requests and counts; here it
is said when.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from engine.explain import explain_text, rest_of_text
from engine.scheduling.plan import Row, Sampled
from engine.scheduling.request import RequestState, pool_states, prompt_scores
from engine.types import ErrorInfo, FinishReason, TokenLogprob, TokensEvent

if TYPE_CHECKING:  # the core owns this, so only the name is needed here
    from engine.core import Core


class Delivery:
    """One core's.

    Attributes:
        stopped: requests ended by a stop string or their form in this step.
        broken: those whose text could not be made in this step, and why.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self.stopped: list[str] = []
        self.broken: list[tuple[str, ErrorInfo]] = []

    def commit(self, rows: Sequence[Row], results: Sequence[Sampled | None], now: float) -> tuple[int, int]:
        """Book what was computed and send what was said, row by row. Returns prompt positions computed and tokens given."""
        core = self._core
        self.stopped, self.broken = [], []
        commit, deliver = core.scheduler.commit, self._deliver
        first_tokens, gaps = core.measures.first_tokens, core.measures.gaps
        prompt_tokens = output_tokens = 0
        since, together = now, 0  # of so many riders the last token came then: nearly always of all
        for row, sampled in zip(rows, results, strict=True):
            request, token = row.request, None
            if request.finish is not None:  # cancelled meanwhile
                continue
            if sampled is not None:
                if sampled.error is not None:
                    core.end(request, FinishReason.ERROR, now, sampled.error)
                    continue
                token = sampled.token
                if sampled.scores:
                    request.scored += sampled.scores
                if sampled.pooled:
                    pool_states(request, row.start + row.count, sampled.pooled)
            if row.draft and sampled is not None:
                output_tokens += self._commit_draft(row, sampled, now)
                continue
            before = request.ledger.last_token
            commit(row, token, now)
            if row.count != 1 or row.start < request.prompt_len:
                prompt_tokens += row.count
            if token is None:
                continue
            if request.params.pooling is not None:
                core.end(request, FinishReason.STOP, now)
                continue
            output_tokens += 1
            if before is None:
                first_tokens.append(now - request.ledger.start)
            elif before == since:
                together += 1
            else:
                if together:
                    gaps.append(now - since, together)
                since, together = before, 1
            deliver(request, token, now, sampled.logprob if sampled is not None else None)
        if together:
            gaps.append(now - since, together)
        core.totals.prompt_tokens += prompt_tokens
        core.totals.output_tokens += output_tokens
        return prompt_tokens, output_tokens

    def _commit_draft(self, row: Row, sampled: Sampled, now: float) -> int:
        """Book a draft as if its tokens had come one by one, up to the answer's end, and send them as one. Returns the tokens given."""
        core, request, said = self._core, row.request, [*sampled.accepted, sampled.token]
        before, began = request.ledger.last_token, request.ledger.start
        assert request.lookup is not None, "a request that nothing is guessed for has no draft"
        given: list[int] = []
        texts: list[str] = []
        ending: FinishReason | None = None
        broken = len(self.broken)
        for place, token in enumerate(said):
            assert token is not None
            core.scheduler.commit(Row(request, row.start + place, 1, True), token, now)
            given.append(token)
            text, ending = self._say(request, token)
            texts.append(text)
            if ending is not None or len(self.broken) > broken:
                break
        core.emit(TokensEvent(request.id, "".join(texts), tuple(given), pieces=tuple(texts) if len(texts) > 1 else ()))
        if ending is not None:
            core.end(request, ending, now)
        sampled.accepted, sampled.token = tuple(given[:-1]), given[-1]  # as far as it counts, for the record
        accepted = len(given) - 1
        if before is None:  # an answer that began before a recording of it did, played again
            core.measures.first_tokens.append(now - began)
        else:
            core.measures.gaps.append((now - before) / len(given), len(given))
        request.lookup.judge(len(row.draft), accepted, len(request.tokens))
        core.totals.drafted_tokens += len(row.draft)
        core.totals.accepted_tokens += accepted
        return len(given)

    def _deliver(self, request: RequestState, token: int, now: float, logprob: TokenLogprob | None) -> None:
        """Turn a token into text, send it, and end the request if that was its last."""
        core, broken = self._core, len(self.broken)
        text, ending = self._say(request, token)
        if logprob is None and request.params.prompt_logprobs is None or len(self.broken) > broken:
            core.emit(TokensEvent(request.id, text, (token,)))
        else:
            scores = prompt_scores(request) if request.output_len == 1 else ()
            core.emit(TokensEvent(request.id, text, (token,), () if logprob is None else (logprob,), scores))
        if ending is not None:
            core.end(request, ending, now)

    def _say(self, request: RequestState, token: int) -> tuple[str, FinishReason | None]:
        """The text that a committed token adds, and why the answer ends with it, if it does. What has no text is noted as broken."""
        core, params, text = self._core, request.params, ""
        ends = token in core.eos_ids and not params.ignore_eos or token in params.stop_token_ids
        ends = ends and request.output_len > params.min_tokens
        if request.stream is not None or request.form is not None:
            try:
                text, said_all = self._spell(request, token, ends)
            except Exception as error:
                self.broken.append((request.id, explain_text(request, error)))
                return "", None
            ends = ends or said_all
        full = len(request.tokens) >= request.limit
        if ends or full:
            text += rest_of_text(request)
            return text, FinishReason.STOP if ends else FinishReason.LENGTH
        return text, None

    def _spell(self, request: RequestState, token: int, ends: bool) -> tuple[str, bool]:
        """The text that the token adds, and whether a stop string or the request's form ends the answer with it."""
        stream, text, stopped = request.stream, "", False
        if stream is not None and not ends:
            text = stream.push(token)
            stopped = stream.stopped
        formed = request.form is not None and request.form.advance(token) and request.form.complete
        if stopped or formed:
            self.stopped.append(request.id)
        return text, stopped or formed

"""How many blocks the seated requests will still want: the watermark that keeps preemption rare.

A preempted answer stands still for seconds, so a newcomer boards only if what those already seated are expected to grow stays
free. Expectation is learned from past answers; where the length is known (end-of-text is ignored, or a minimum is asked) it is exact.
"""

from __future__ import annotations

from engine.scheduling.request import RequestState


def expected_rest(typical: float, output: int, bound: int, goes_on: bool, least: int, share: float = 1.0) -> float:
    """Tokens that an answer of `output` tokens will probably add, of `bound` that it may and `least` that it must."""
    if goes_on:
        return bound
    # An answer longer than the typical one is likely to be longer still: expect a quarter of what it has.
    likely = max(typical - output, output / 4) * share
    return min(bound, max(least, likely))


class GrowthEstimate:
    """An exponentially weighted mean of answer lengths."""

    WEIGHT = 0.1
    SHARE = 0.5  # riders end at different times, so they never all stand at their longest together

    def __init__(self, block_size: int, typical: float = 64.0) -> None:
        self.block_size = block_size
        self.typical = typical

    def learn(self, answer_tokens: int) -> None:
        self.typical += self.WEIGHT * (answer_tokens - self.typical)

    def expected(self, request: RequestState) -> float:
        """Tokens this answer will probably add, for what a person is told of it."""
        return self._remaining(request, 1.0)

    def remaining(self, request: RequestState) -> float:
        """Tokens to keep room for: less than expected, see `SHARE`."""
        return self._remaining(request, self.SHARE)

    def _remaining(self, request: RequestState, share: float) -> float:
        known, params = len(request.tokens), request.params
        output, goes_on = known - request.prompt_len, params.ignore_eos and not params.stop
        return expected_rest(self.typical, output, request.limit - known, goes_on, params.min_tokens - output, share)

    def blocks(self, request: RequestState) -> int:
        """Blocks this answer is expected to add to those that hold its known tokens."""
        known, size = len(request.tokens), self.block_size
        return -(-int(known + self.remaining(request)) // size) - -(-known // size)

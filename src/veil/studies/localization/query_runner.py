"""All questions to the maps of a place, answered in processes: the work of `veil evaluate queries`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from veil.features import Features
from veil.localization.by_distance import LocalizeOptions
from veil.studies.localization.acceptance_counts import SIGHTS, Sight, Verdict
from veil.studies.localization.false_acceptance import Fold, Protocol, Question, answer, false_questions, true_questions
from veil.studies.localization.robustness import Load, Strained, strain
from veil.threads import single_blas

WAITING = 4  # questions a process that are matched ahead


@dataclass(frozen=True, kw_only=True, eq=False)
class Examination:
    """A question, what it is asked with (sight and draw), and the loads that it is put under."""

    question: Question
    asked: tuple[tuple[Sight, int], ...]
    loads: tuple[Load, ...]
    options: LocalizeOptions


@dataclass(frozen=True, kw_only=True, eq=False)
class Answers:
    """What one examination found."""

    verdicts: list[Verdict]
    strained: list[Strained]


def count(folds: Sequence[Fold], others: Mapping[str, Features], protocol: Protocol) -> int:
    """How many examinations a place takes."""
    return len(folds[0].place.features) + len(others) + 2 * protocol.noise


def examinations(
    folds: Sequence[Fold], others: Mapping[str, Features], loads: Sequence[Load], protocol: Protocol
) -> Iterator[Examination]:
    """True queries from points and in all draws of lines, under strain; false ones from points and one kind of lines each."""
    sights = SIGHTS[1:]
    drawn = tuple((sight, draw) for sight in sights for draw in range(protocol.draws))
    for fold in folds:
        for question in true_questions(fold, protocol):
            yield Examination(question=question, asked=(("points", 0), *drawn), loads=tuple(loads), options=protocol.localize)
    for index, question in enumerate(false_questions(folds, others, protocol)):
        # Noise comes in pairs of the two kinds, so the kind of lines changes after every pair.
        sight = sights[(index if question.kind == "other place" else (index - len(others)) // 2) % len(sights)]
        yield Examination(question=question, asked=(("points", 0), (sight, 0)), loads=(), options=protocol.localize)


def examine(examination: Examination) -> Answers:
    """Answer one question in every way that is asked for."""
    with single_blas():
        question, options = examination.question, examination.options
        return Answers(
            verdicts=[answer(question, sight, draw, options) for sight, draw in examination.asked],
            strained=strain(question, examination.loads, options) if examination.loads else [],
        )


def examine_all(items: Iterable[Examination], *, workers: int, prepare: Callable[[], None] | None = None) -> Iterator[Answers]:
    """Answers in order; `prepare` runs first in every process.

    With more than one worker the caller's program must be importable (`if __name__ == "__main__"`).
    """
    if workers == 1:
        yield from map(examine, items)
        return
    pending: deque[Future[Answers]] = deque()
    # RANSAC over lines is a Python loop, which threads would not share out; COLMAP's own threads forbid forking.
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=prepare) as pool:
        try:
            for item in items:
                pending.append(pool.submit(examine, item))
                if len(pending) > WAITING * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise

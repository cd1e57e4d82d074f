"""Who is served first, and who gives way.

Knows nothing of budgets or blocks: it orders what it is given.
"""

from collections.abc import Sequence

from scheduler_service.planning.snapshot import RunningSequence, WaitingRequest


def rank_order(waiting: Sequence[WaitingRequest]) -> list[WaitingRequest]:
    """Most important class first; within a class the window's own order."""
    return sorted(waiting, key=lambda request: request.priority)


def turn_order(decodes: Sequence[RunningSequence]) -> list[RunningSequence]:
    """Longest passed over first, so that all take turns when a step cannot hold them all."""
    return sorted(decodes, key=lambda s: (-s.num_skips, s.priority, s.rank))


def prompt_order(
    prompts: Sequence[RunningSequence], max_prompt_skips: int
) -> list[RunningSequence]:
    """First those passed over `max_prompt_skips` times, oldest first.

    Then the others: most important class first, in it shortest remaining first.
    """

    def key(sequence: RunningSequence) -> tuple[int, int, int, int]:
        if sequence.num_skips >= max_prompt_skips:
            return (0, 0, 0, sequence.rank)
        return (1, sequence.priority, sequence.num_pending_tokens, sequence.rank)

    return sorted(prompts, key=key)


def preemption_order(sequences: Sequence[RunningSequence]) -> list[RunningSequence]:
    """Who goes first: the least important class, in it the least work to lose, then the newest.

    So a victim is never of a more important class than anyone who stays.
    """
    return sorted(sequences, key=lambda s: (-s.priority, s.num_computed_tokens, -s.rank))

"""Admission, sharing, growth and release of sequences; invariants checked after each operation."""

from typing import Any

import pytest

from shared.types import (
    Admission,
    Assignment,
    FinishReason,
    RefusalReason,
    SamplingParams,
    StopRules,
)
from worker_service.engine.sequence import Sequence
from worker_service.engine.sequence_table import SequenceTable, TableLimits


class CheckedTable(SequenceTable):
    """Checks the invariants after each public operation."""

    def admit(self, admission: Admission) -> Any:
        refusal = super().admit(admission)
        self.check_invariants()
        return refusal

    def compute(self, handle: int, num_tokens: int) -> Sequence:
        """Pretend a step computed so many tokens."""
        sequence = self.get(handle)
        assert sequence is not None
        assert self.grow(sequence, num_tokens) is None
        sequence.num_computed_tokens += num_tokens
        self.publish(sequence)
        self.check_invariants()
        return sequence

    def release(self, handle: int) -> None:
        super().release(handle)
        self.check_invariants()

    def fail(self, sequence: Sequence) -> list[int]:
        freed = super().fail(sequence)
        self.check_invariants()
        return freed


def make_table(num_blocks: int = 10, max_sequences: int = 8, **limits: Any) -> CheckedTable:
    return CheckedTable(
        TableLimits(
            block_size=4,
            num_blocks=num_blocks,
            max_sequences=max_sequences,
            max_model_tokens=64,
            num_token_ids=100,
            **{"prefix_cache": True, **limits},
        ),
        "00" * 32,
    )


def make_admission(handle: int = 1, num_tokens: int = 10, **fields: Any) -> Admission:
    defaults: dict[str, Any] = {
        "token_ids": tuple(range(num_tokens)),
        "num_prompt_tokens": num_tokens,
        "sampling": SamplingParams(),
        "stop": StopRules(max_tokens=4),
    }
    return Admission(
        request_id=f"r{handle}",
        assignment=Assignment(1, 1),
        handle=handle,
        **{**defaults, **fields},
    )


def test_admission_takes_all_blocks_of_prompt_and_log_at_once() -> None:
    table = make_table()

    assert table.admit(make_admission(num_tokens=9)) is None
    assert table.counts().held == 3


def test_an_admission_that_does_not_fit_leaves_nothing_behind() -> None:
    table = make_table(num_blocks=4)
    table.admit(make_admission(1, num_tokens=8))

    refusal = table.admit(make_admission(2, num_tokens=12, stop=StopRules(max_tokens=1)))

    assert refusal.reason is RefusalReason.NO_FREE_BLOCK
    assert table.get(2) is None
    assert table.counts().free == 2


def test_a_known_beginning_is_shared_but_the_last_token_is_always_left_to_compute() -> None:
    table = make_table()
    table.admit(make_admission(1, num_tokens=8))
    table.compute(1, 8)

    table.admit(make_admission(2, num_tokens=8))

    second = table.get(2)
    assert second is not None
    assert second.num_computed_tokens == second.num_cached_tokens == 4
    assert table.counts().held == 3


def test_blocks_are_found_only_once_computed() -> None:
    table = make_table()
    table.admit(make_admission(1, num_tokens=8))

    table.admit(make_admission(2, num_tokens=8))

    assert table.counts().held == 4


def test_equal_blocks_computed_side_by_side_become_one() -> None:
    table = make_table()
    table.admit(make_admission(1, num_tokens=9))
    table.admit(make_admission(2, num_tokens=9))
    first, second = table.compute(1, 9), table.compute(2, 9)

    assert first.block_table[:2] == second.block_table[:2]
    assert table.counts().held == 4


def test_another_salt_shares_nothing() -> None:
    table = make_table()
    table.admit(make_admission(1, num_tokens=9))
    table.compute(1, 9)

    table.admit(make_admission(2, num_tokens=9, cache_salt=b"tenant"))

    assert table.counts().held == 6


def test_without_prefix_cache_all_blocks_become_free() -> None:
    table = make_table(prefix_cache=False)
    table.admit(make_admission(1, num_tokens=9))
    table.compute(1, 9)

    table.release(1)

    assert table.counts().free == 10


def test_cached_blocks_are_given_up_for_others() -> None:
    table = make_table(num_blocks=3)
    table.admit(make_admission(1, num_tokens=9))
    table.compute(1, 9)
    table.release(1)
    assert table.counts().cached == 2

    other = make_admission(2, token_ids=tuple(range(50, 59)), num_prompt_tokens=9)
    assert table.admit(other) is None
    assert table.counts().held == 3


def test_a_shared_beginning_is_not_evicted_to_make_room_for_its_own_rest() -> None:
    table = make_table(num_blocks=3)
    table.admit(make_admission(1, num_tokens=9))
    table.compute(1, 9)
    table.release(1)

    assert table.admit(make_admission(2, num_tokens=12, stop=StopRules(max_tokens=1))) is None
    second = table.get(2)
    assert second is not None
    assert second.num_computed_tokens == 8
    assert len(set(second.block_table)) == 3


def test_a_failed_sequence_leaves_no_block_in_the_prefix_cache() -> None:
    table = make_table()
    table.admit(make_admission(1, num_tokens=9))
    sequence = table.compute(1, 9)

    assert len(table.fail(sequence)) == 3
    assert table.counts().free == 10


def test_what_follows_a_distrusted_beginning_is_not_published() -> None:
    table = make_table()
    table.admit(make_admission(1, num_tokens=9))
    first = table.compute(1, 9)
    table.admit(make_admission(2, token_ids=(*range(9), 50, 51), num_prompt_tokens=11))
    table.fail(first)
    second = table.compute(2, 3)
    second.token_ids += [52]
    table.compute(2, 1)

    table.release(2)

    assert table.counts().cached == 0


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"num_prompt_tokens": 0}, "prompt tokens"),
        ({"num_prompt_tokens": 11}, "prompt tokens"),
        ({"token_ids": (), "num_prompt_tokens": 1}, "prompt tokens"),
        ({"token_ids": (1, 100), "num_prompt_tokens": 2}, "token ids"),
        ({"token_ids": (-1, 3), "num_prompt_tokens": 2}, "token ids"),
        ({"num_prompt_tokens": 6}, "output tokens"),
        ({"stop": StopRules(max_tokens=0)}, "output tokens"),
        ({"stop": StopRules(max_tokens=56)}, "model's"),
        ({"stop": StopRules(max_tokens=35)}, "blocks"),
        ({"sampling": SamplingParams(temperature=float("nan"))}, "temperature"),
        ({"sampling": SamplingParams(top_p=0.0)}, "top_p"),
        ({"sampling": SamplingParams(seed=-1)}, "seed"),
    ],
)
def test_an_impossible_admission_is_refused_with_the_reason(
    fields: dict[str, Any], word: str
) -> None:
    table = make_table()

    refusal = table.admit(make_admission(**fields))

    assert refusal.reason is RefusalReason.BAD_ADMISSION
    assert word in refusal.detail
    assert table.counts().free == 10


def test_a_live_handle_and_a_full_table_are_refused() -> None:
    table = make_table(max_sequences=1)
    table.admit(make_admission(1))

    assert table.admit(make_admission(1)).reason is RefusalReason.DUPLICATE_HANDLE
    assert table.admit(make_admission(2)).reason is RefusalReason.SEQUENCE_CAP


def test_a_stop_token_wins_over_the_length_and_counts_only_after_min_tokens() -> None:
    stop = StopRules(max_tokens=3, min_tokens=2, stop_token_ids=(7,))
    sequence = Sequence.admitted(make_admission(stop=stop))

    sequence.append(5)
    assert not sequence.can_stop()
    sequence.append(6)
    assert sequence.can_stop()
    assert sequence.finish is None
    sequence.append(7)

    assert sequence.finish is FinishReason.STOP_TOKEN
    assert sequence.num_pending_tokens == 0

"""Index tensors of a step: which token, which slot, which group."""

from shared.types import Admission, Assignment, SamplingParams, StopRules
from worker_service.engine.batch_input import TILE_QUERIES, StepInput, build_step_input
from worker_service.engine.row import Row
from worker_service.engine.sequence import Sequence

NULL_BLOCK = 99


def make_sequence(
    num_tokens: int, num_computed_tokens: int = 0, block_table: list[int] | None = None
) -> Sequence:
    admission = Admission(
        request_id="r",
        assignment=Assignment(1, 1),
        handle=1,
        token_ids=tuple(range(100, 100 + num_tokens)),
        num_prompt_tokens=num_tokens,
        sampling=SamplingParams(),
        stop=StopRules(max_tokens=8),
    )
    sequence = Sequence.admitted(admission)
    sequence.num_computed_tokens = num_computed_tokens
    sequence.block_table = block_table or list(range(-(-num_tokens // 4)))
    return sequence


def build(*rows: Row) -> StepInput:
    return build_step_input(rows, block_size=4, null_block_id=NULL_BLOCK, device="cpu")


def test_a_chunk_begins_where_the_sequence_stands() -> None:
    sequence = make_sequence(10, num_computed_tokens=3, block_table=[7, 2, 5])

    step = build(Row(sequence, 4))

    assert step.token_ids_T.tolist() == [103, 104, 105, 106]
    assert step.position_T.tolist() == [3, 4, 5, 6]
    assert step.slot_T.tolist() == [31, 8, 9, 10]
    assert step.sample_token_R.tolist() == []


def test_only_rows_that_reach_their_last_token_sample() -> None:
    whole, part = make_sequence(3), make_sequence(9)

    step = build(Row(part, 4), Row(whole, 3))

    assert step.token_ids_T[step.sample_token_R].tolist() == [102]
    assert step.token_row[int(step.sample_token_R[0])] == 1


def test_decodes_share_one_group_padded_with_the_null_block() -> None:
    short, long = make_sequence(2, 1, [3]), make_sequence(9, 8, [4, 5, 6])

    step = build(Row(short, 1), Row(long, 1))

    (group,) = step.groups
    assert group.block_table_BM.tolist() == [[3, NULL_BLOCK, NULL_BLOCK], [4, 5, 6]]
    assert group.position_BQ.tolist() == [[1], [8]]
    assert group.real_n is None


def test_chunks_of_like_size_share_a_group_with_padding_queries() -> None:
    first, second = make_sequence(6), make_sequence(8)

    step = build(Row(first, 6), Row(second, 8))

    (group,) = step.groups
    assert group.position_BQ.shape == (2, 8)
    assert group.real_n is not None
    assert len(group.real_n) == 14
    assert (group.first, group.last) == (0, 14)


def test_a_decode_and_a_chunk_are_two_groups_that_cover_all_tokens() -> None:
    step = build(Row(make_sequence(5, 4), 1), Row(make_sequence(20), 20))

    assert [(group.first, group.last) for group in step.groups] == [(0, 1), (1, 21)]
    assert len(step.sample_token_R) == 2


def test_a_long_chunk_is_cut_into_tiles_that_read_no_further_than_they_must() -> None:
    num_tokens = 3 * TILE_QUERIES + 5
    sequence = make_sequence(num_tokens)

    step = build(Row(sequence, num_tokens))

    assert step.position_T.tolist() == list(range(num_tokens))
    assert step.groups[0].block_table_BM.shape[1] < step.groups[-1].block_table_BM.shape[1]
    assert step.sample_token_R.tolist() == [num_tokens - 1]
    assert len(step.sample_token_R) == 1


def test_tiles_out_of_order_still_sample_at_the_last_token() -> None:
    long, short = make_sequence(TILE_QUERIES + 3), make_sequence(3)

    step = build(Row(short, 3), Row(long, TILE_QUERIES + 3))

    assert step.token_ids_T[step.sample_token_R].tolist() == [102, 100 + TILE_QUERIES + 2]

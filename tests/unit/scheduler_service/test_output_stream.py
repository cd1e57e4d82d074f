"""Where a stream may begin: at any index up to the visible end, and at none behind it."""

import pytest
from tiny_tokenizers import byte_level_tokenizer

from scheduler_service.output_stream import OutputStream
from scheduler_service.reader import LogEnd, Reader
from scheduler_service.request_spec import RequestSpec
from scheduler_service.text import TextCodec
from shared.errors import (
    DataLoss,
    IndexBeyondLog,
    RequestCancelled,
    RequestExpired,
    RequestFailed,
    ServingError,
)
from shared.types import FinishReason, SamplingParams, StopRules

TOKENIZER = byte_level_tokenizer()
CODEC = TextCodec(TOKENIZER, None, {})
IDS = TOKENIZER.encode("xyz").ids

WITHHELD_TOKEN = LogEnd(
    status="finished", finish=FinishReason.STOP_TOKEN, visible_tokens=2, stop_match=str(IDS[-1])
)
WITHHELD_TEXT = LogEnd(
    status="finished",
    finish=FinishReason.STOP_STRING,
    visible_tokens=2,
    visible_chars=2,
    stop_match="z",
)
ALL_VISIBLE = LogEnd(status="finished", finish=FinishReason.LENGTH)
CANCELLED = LogEnd(status="cancelled", finish=FinishReason.CANCELLED)
EXPIRED = LogEnd(status="expired", finish=FinishReason.EXPIRED)
FAILED = LogEnd(status="failed", finish=FinishReason.ERROR, error="broken")
DATA_LOST = LogEnd(status="data_loss", finish=None)


def make_spec(stop_strings=()):
    return RequestSpec(
        prompt_ids=(1,),
        sampling=SamplingParams(),
        stop=StopRules(max_tokens=10),
        stop_strings=stop_strings,
        model="tiny",
    )


async def read_from(start, end, *, stop_strings=(), prefix_hash=b""):
    """The last chunk of a log of three ids that ended so."""
    reader = Reader("r", 0)
    stream = OutputStream(CODEC, make_spec(stop_strings), reader)
    reader.take(0, IDS)
    reader.finish(end)
    return await last_chunk(stream, start, prefix_hash)


async def last_chunk(stream, start, prefix_hash=b""):
    await stream.skip_to(start, prefix_hash)
    while True:
        chunk = await stream.next_chunk()
        if chunk is not None and chunk.end is not None:
            return chunk


@pytest.mark.parametrize(
    ("end", "num_visible"), [(WITHHELD_TOKEN, 2), (WITHHELD_TEXT, 2), (ALL_VISIBLE, 3)]
)
async def test_a_stream_may_begin_at_the_visible_end_and_not_behind_it(end, num_visible):
    last = await read_from(num_visible, end)

    assert (last.start_index, last.token_ids, last.text) == (num_visible, (), "")
    assert last.end.num_output_tokens == num_visible
    for start in range(num_visible + 1, 6):
        with pytest.raises(IndexBeyondLog, match=f"{start} is beyond the {num_visible} visible"):
            await read_from(start, end)


async def test_an_index_behind_the_visible_end_is_no_matter_of_its_hash():
    with pytest.raises(IndexBeyondLog):
        await read_from(3, WITHHELD_TOKEN, prefix_hash=b"12345678")


@pytest.mark.parametrize(
    ("end", "error"),
    [(CANCELLED, RequestCancelled), (EXPIRED, RequestExpired), (FAILED, RequestFailed)],
)
async def test_a_request_that_ended_otherwise_says_so_up_to_its_visible_end(end, error):
    with pytest.raises(error):
        await read_from(3, end)
    with pytest.raises(
        IndexBeyondLog, match=f"3 visible tokens of request r, which is {end.status}"
    ):
        await read_from(4, end)


@pytest.mark.parametrize(("start", "error"), [(1, RequestCancelled), (2, IndexBeyondLog)])
async def test_what_a_cancelled_request_withheld_is_behind_its_end(start, error):
    """The text of the last two ids may begin a stop string: only one id was ever shown."""
    with pytest.raises(error):
        await read_from(start, CANCELLED, stop_strings=("yzz",))


async def test_a_log_that_lost_tokens_is_data_loss_at_any_index():
    for start in (0, 3, 9):
        with pytest.raises(DataLoss):
            await read_from(start, DATA_LOST)


@pytest.mark.parametrize("end", [WITHHELD_TEXT, CANCELLED])
async def test_the_end_is_judged_too_when_it_comes_after_the_stream_began(end):
    reader = Reader("r", 0)
    stream = OutputStream(CODEC, make_spec(("yzz",)), reader)
    reader.take(0, IDS)
    await stream.skip_to(3, b"")

    reader.finish(end)

    with pytest.raises(ServingError) as raised:
        await stream.next_chunk()
    assert isinstance(raised.value, IndexBeyondLog)


async def test_a_start_ahead_of_the_log_waits_for_it_and_beats_meanwhile():
    reader = Reader("r", 0)
    stream = OutputStream(CODEC, make_spec(), reader)
    reader.take(0, IDS[:1])

    for _ in range(3):  # as long as nothing comes
        reader.beat()
        assert not await stream.skip_to(2, b"")
        assert reader.take_beat()
    reader.take(1, IDS[1:])

    assert await stream.skip_to(2, b"")
    chunk = await stream.next_chunk()
    assert chunk is not None and (chunk.start_index, chunk.token_ids) == (2, (IDS[2],))

"""What goes over the wire comes back as it was, and what nobody can have meant is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import MalformedMessage
from shared.pb import worker_pb2 as pb
from shared.types import (
    Admission,
    Assignment,
    BatchPlan,
    BlockCounts,
    Chunk,
    DriverHeartbeat,
    Fenced,
    FinishReason,
    Hello,
    MemoryStats,
    PlanRefused,
    Refusal,
    RefusalReason,
    Release,
    ReleaseReason,
    Replay,
    Resident,
    ResidentSequence,
    SamplingParams,
    StepResult,
    StepRow,
    StepTimings,
    StopRules,
    WorkerDescription,
    WorkerHeartbeat,
    WorkerStats,
    Yield,
)
from shared.validation import RawRequest
from shared.wire.columns import pack_u32, unpack_columns, unpack_u32
from shared.wire.generation import raw_request_from_pb, raw_request_to_pb
from shared.wire.plan import driver_message_from_pb, driver_message_to_pb
from shared.wire.result import worker_message_from_pb, worker_message_to_pb
from shared.wire.stats import description_from_pb, description_to_pb, stats_from_pb, stats_to_pb

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
ids = st.lists(u32, max_size=8).map(tuple)
names = st.text(max_size=8)
blocks = st.builds(BlockCounts, total=u32, free=u32, cached=u32, held=u32)
memory = st.builds(MemoryStats, process_bytes=u64, kv_bytes=u64)
timings = st.builds(StepTimings, idle_ns=u64, forward_ns=u64, total_ns=u64)
finishes = st.sampled_from([None, *FinishReason])
assignments = st.builds(Assignment, u64, u64)
sampling = st.builds(
    SamplingParams,
    temperature=st.floats(0, 10),
    top_k=u32,
    top_p=st.floats(0, 1),
    min_p=st.floats(0, 1),
    seed=u64,
    child_index=u32,
)
stop = st.builds(StopRules, max_tokens=u32, min_tokens=u32, stop_token_ids=ids)
admissions = st.builds(
    Admission,
    request_id=names,
    assignment=assignments,
    handle=u32,
    token_ids=ids,
    num_prompt_tokens=u32,
    sampling=sampling,
    stop=stop,
    cache_salt=st.binary(max_size=8),
)
plans = st.builds(
    BatchPlan,
    epoch=u64,
    step_id=u64,
    durable_step=u64,
    releases=st.lists(
        st.builds(Release, handle=u32, reason=st.sampled_from(ReleaseReason)), max_size=3
    ).map(tuple),
    admissions=st.lists(admissions, max_size=3).map(tuple),
    chunks=st.lists(st.builds(Chunk, u32, u32), max_size=5).map(tuple),
    predicted_ns=u64,
)
rows = st.lists(
    st.builds(
        StepRow,
        handle=u32,
        num_computed_tokens=u32,
        sampled_ids=ids,
        first_index=u32,
        num_cached_tokens=u32,
        finish=finishes,
    ),
    max_size=5,
    unique_by=lambda row: row.handle,
).map(tuple)
results = st.builds(
    StepResult,
    epoch=u64,
    step_id=u64,
    rows=rows,
    refusals=st.lists(
        st.builds(Refusal, handle=u32, reason=st.sampled_from(RefusalReason), detail=names),
        max_size=3,
    ).map(tuple),
    blocks=blocks,
    memory=memory,
    timings=timings,
    idle_with_work=st.booleans(),
)
residents = st.builds(
    Resident,
    incarnation=names,
    epoch=u64,
    last_step_id=u64,
    sequences=st.lists(
        st.builds(
            ResidentSequence,
            request_id=names,
            assignment=assignments,
            handle=u32,
            num_prompt_tokens=u32,
            num_computed_tokens=u32,
            output_ids=ids,
            num_held_blocks=u32,
            finish=finishes,
        ),
        max_size=3,
    ).map(tuple),
    blocks=blocks,
)
driver_messages = st.one_of(
    plans,
    st.builds(Hello, replica_id=names),
    st.builds(DriverHeartbeat, durable_step=u64),
    st.builds(Yield, reason=names, forget=st.booleans()),
)
worker_messages = st.one_of(
    results,
    residents,
    st.builds(Replay, result=results),
    st.builds(WorkerHeartbeat, last_step_id=u64, running_step_id=u64, running_step_age_ms=u64),
    st.builds(Fenced, reason=names, driver=names, epoch=u64),
    st.builds(PlanRefused, step_id=u64, reason=names, detail=names, expected_step_id=u64),
)


@given(driver_messages)
def test_driver_messages_come_back_as_they_were(message):
    wire = driver_message_to_pb(message).SerializeToString()

    assert driver_message_from_pb(pb.DriverMessage.FromString(wire)) == message


@given(worker_messages)
def test_worker_messages_come_back_as_they_were(message):
    wire = worker_message_to_pb(message).SerializeToString()

    assert worker_message_from_pb(pb.WorkerMessage.FromString(wire)) == message


@given(
    st.builds(
        WorkerDescription,
        incarnation=names,
        name=names,
        model=names,
        fingerprint=names,
        dtype=names,
        device=names,
        block_size=u32,
        num_blocks=u64,
        max_model_tokens=u32,
        logits_width=u32,
        eos_token_ids=ids,
    )
)
def test_descriptions_come_back_as_they_were(description):
    assert description_from_pb(description_to_pb(description)) == description


@given(
    st.builds(
        WorkerStats,
        incarnation=names,
        epoch=u64,
        driver=names,
        last_step_id=u64,
        running_step_id=u64,
        running_step_age_ms=u64,
        num_sequences=u32,
        blocks=blocks,
        memory=memory,
        num_steps=u64,
        num_sampled_tokens=u64,
    )
)
def test_stats_come_back_as_they_were(stats):
    assert stats_from_pb(stats_to_pb(stats)) == stats


@given(
    st.builds(
        RawRequest,
        request_id=names,
        text=names,
        temperature=st.none() | st.floats(allow_nan=False),
        top_k=st.none() | u32,
        seed=st.none() | u64,
        max_tokens=st.none() | u32,
        stop=st.lists(names, max_size=3).map(tuple),
        stop_token_ids=ids,
        ignore_eos=st.booleans(),
        priority=st.integers(-(2**31), 2**31 - 1),
        timeout_ms=u64,
        on_disconnect=st.sampled_from(("cancel", "finish")),
        disconnect_grace_ms=st.none() | u32,
    )
)
def test_requests_come_back_as_they_were(raw):
    assert raw_request_from_pb(raw_request_to_pb(raw)) == raw


@given(st.lists(u32))
def test_columns_come_back_as_they_were(numbers):
    assert unpack_u32(pack_u32(numbers)) == tuple(numbers)


@pytest.mark.parametrize(
    "message",
    [
        pb.DriverMessage(),
        pb.DriverMessage(plan=pb.BatchPlan(chunk_handles=b"\0" * 4)),
        pb.DriverMessage(plan=pb.BatchPlan(chunk_handles=b"\0" * 3, chunk_max_tokens=b"\0" * 3)),
        pb.DriverMessage(plan=pb.BatchPlan(release=[pb.Release(handle=1)])),
        pb.DriverMessage(plan=pb.BatchPlan(admit=[pb.Admission(token_ids=b"\0")])),
    ],
)
def test_a_malformed_driver_message_is_refused(message):
    with pytest.raises(MalformedMessage):
        driver_message_from_pb(message)


def test_unequal_columns_and_uncounted_ids_are_refused():
    with pytest.raises(MalformedMessage):
        unpack_columns(pack_u32([1]), pack_u32([1, 2]))
    result = pb.StepResult(sampled_ids=pack_u32([1, 2]))
    with pytest.raises(MalformedMessage):
        worker_message_from_pb(pb.WorkerMessage(step_result=result))

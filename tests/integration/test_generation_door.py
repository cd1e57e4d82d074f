"""The native door of a running stack, as a client in any language sees it."""

import asyncio

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from shared.pb import generation_pb2 as pb
from shared.pb import generation_pb2_grpc

pytestmark = [pytest.mark.stack, pytest.mark.slow]


@pytest.fixture
async def stub(tiny_stack):
    async with grpc.aio.insecure_channel(tiny_stack.endpoints[0]) as channel:
        yield generation_pb2_grpc.GenerationStub(channel)


def violations_of(error: grpc.aio.AioRpcError) -> dict[str, str]:
    details = dict(error.trailing_metadata())["grpc-status-details-bin"]
    for detail in status_pb2.Status.FromString(details).details:
        bad = error_details_pb2.BadRequest()
        if detail.Unpack(bad):
            return {v.field: v.description for v in bad.field_violations}
    return {}


BAD_REQUESTS = {
    "empty prompt": (pb.GenerateRequest(text=""), "text"),
    "no prompt": (pb.GenerateRequest(), "prompt"),
    "no messages": (pb.GenerateRequest(chat=pb.ChatPrompt()), "chat"),
    "temperature NaN": (
        pb.GenerateRequest(text="a", sampling=pb.Sampling(temperature=float("nan"))),
        "sampling.temperature",
    ),
    "temperature infinite": (
        pb.GenerateRequest(text="a", sampling=pb.Sampling(temperature=float("inf"))),
        "sampling.temperature",
    ),
    "top_p zero": (pb.GenerateRequest(text="a", sampling=pb.Sampling(top_p=0)), "sampling.top_p"),
    "min_p above one": (
        pb.GenerateRequest(text="a", sampling=pb.Sampling(min_p=1.5)),
        "sampling.min_p",
    ),
    "max_tokens zero": (
        pb.GenerateRequest(text="a", stopping=pb.Stopping(max_tokens=0)),
        "stopping.max_tokens",
    ),
    "more than the model takes": (
        pb.GenerateRequest(text="a", stopping=pb.Stopping(max_tokens=100_000)),
        "stopping.max_tokens",
    ),
    "id beyond the logits": (
        pb.GenerateRequest(tokens=pb.TokenPrompt(ids=[1, 272])),
        "tokens.ids[1]",
    ),
    "stop id beyond the logits": (
        pb.GenerateRequest(text="a", stopping=pb.Stopping(stop_token_ids=[272])),
        "stopping.stop_token_ids[0]",
    ),
    "too many stop strings": (
        pb.GenerateRequest(text="a", stopping=pb.Stopping(stop=[str(n) for n in range(100)])),
        "stopping.stop",
    ),
    "too long a stop string": (
        pb.GenerateRequest(text="a", stopping=pb.Stopping(stop=["x" * 10_000])),
        "stopping.stop[0]",
    ),
    "request id with braces": (pb.GenerateRequest(text="a", request_id="{a}"), "request_id"),
    "priority out of range": (pb.GenerateRequest(text="a", priority=100_000), "priority"),
}


@pytest.mark.parametrize("name", BAD_REQUESTS)
async def test_bad_input_is_named_and_never_queued(stub, name):
    request, field = BAD_REQUESTS[name]

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        async for _ in stub.Generate(request):
            pass

    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert any(f.startswith(field) for f in violations_of(raised.value)), raised.value.details()


async def test_a_prompt_that_fits_no_cache_is_refused_at_submit(stub):
    ids = pb.TokenPrompt(ids=[1] * 2047)

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Submit(pb.GenerateRequest(tokens=ids, stopping=pb.Stopping(max_tokens=2)))

    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_bad_utf8_is_an_invalid_argument(tiny_stack):
    async with grpc.aio.insecure_channel(tiny_stack.endpoints[0]) as channel:
        call = channel.unary_unary("/tokentide.v1.Generation/Submit")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await call(b"\x1a\x02\xff\xfe")  # field 3, text: two bytes that are no UTF-8

    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "UTF-8" in raised.value.details()


async def test_an_unknown_model_is_not_found(stub):
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Submit(pb.GenerateRequest(text="a", model="nobody"))

    assert raised.value.code() is grpc.StatusCode.NOT_FOUND


async def test_an_unknown_request_is_not_found_but_cancelling_it_is_fine(stub):
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.GetRequest(pb.GetRequestRequest(request_id="nobody"))

    assert raised.value.code() is grpc.StatusCode.NOT_FOUND
    await stub.Cancel(pb.CancelRequest(request_ids=["nobody"]))


def calls_with_id(stub, request_id):
    """All that take the id of a request, and the field it goes in."""
    return [
        (stub.Generate(pb.GenerateRequest(text="a", request_id=request_id)), "request_id"),
        (stub.Submit(pb.GenerateRequest(text="a", request_id=request_id)), "request_id"),
        (stub.Follow(pb.FollowRequest(request_id=request_id)), "request_id"),
        (stub.GetRequest(pb.GetRequestRequest(request_id=request_id)), "request_id"),
        (stub.Cancel(pb.CancelRequest(request_ids=["a", request_id])), "request_ids[1]"),
    ]


@pytest.mark.parametrize("request_id", ["", "a b", "{tokentide}", "x" * 129, "é"])
async def test_every_method_judges_the_id_it_is_given(stub, request_id):
    num_drawing = 0 if request_id else 2  # Generate and Submit draw an id that is left out
    for call, field in calls_with_id(stub, request_id)[num_drawing:]:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await (call.read() if hasattr(call, "read") else call)

        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert list(violations_of(raised.value)) == [field]


async def test_no_more_ids_are_cancelled_at_once_than_the_contract_says(stub):
    await stub.Cancel(pb.CancelRequest(request_ids=["nobody"] * 10_000))

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Cancel(pb.CancelRequest(request_ids=["nobody"] * 10_001))

    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert list(violations_of(raised.value)) == ["request_ids"]


async def test_the_same_id_with_other_fields_already_exists(stub):
    first = pb.GenerateRequest(text="a", request_id="twice", stopping=pb.Stopping(max_tokens=2))
    assert (await stub.Submit(first)).created
    assert not (await stub.Submit(first)).created

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await stub.Submit(pb.GenerateRequest(text="b", request_id="twice"))

    assert raised.value.code() is grpc.StatusCode.ALREADY_EXISTS


async def test_a_passed_deadline_ends_as_deadline_exceeded(stub):
    request = pb.GenerateRequest(
        text="a", timeout_ms=1, stopping=pb.Stopping(max_tokens=1900, ignore_eos=True)
    )

    with pytest.raises(grpc.aio.AioRpcError) as raised:
        async for _ in stub.Generate(request):
            pass

    assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_health_and_reflection_are_there(tiny_stack):
    async with grpc.aio.insecure_channel(tiny_stack.endpoints[0]) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "tokentide.v1.Generation"):
            reply = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        reflection = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection.ServerReflectionInfo(iter([ask]))
        names = [s.name async for r in call for s in r.list_services_response.service]

    assert "tokentide.v1.Generation" in names
    assert "grpc.health.v1.Health" in names


async def test_follow_from_any_index_gives_the_same_output(stub):
    request = pb.GenerateRequest(
        text="hello hello",
        request_id="follow-me",
        sampling=pb.Sampling(temperature=1.0, seed=7),
        stopping=pb.Stopping(max_tokens=40, ignore_eos=True),
    )
    whole = [chunk async for chunk in stub.Generate(request)]
    ids = [i for chunk in whole for i in chunk.token_ids]
    text = "".join(chunk.text for chunk in whole)
    assert len(ids) == 40
    hashes = {0: b""} | {c.start_index + len(c.token_ids): c.prefix_hash for c in whole}
    texts = {}
    seen = ""
    for chunk in whole:
        seen += chunk.text
        texts[chunk.start_index + len(chunk.token_ids)] = seen

    for start, prefix_hash in hashes.items():
        rest = pb.FollowRequest(request_id="follow-me", start_index=start, prefix_hash=prefix_hash)
        chunks = [chunk async for chunk in stub.Follow(rest)]
        assert [i for c in chunks for i in c.token_ids] == ids[start:]
        if start and start < 40:
            assert texts[start] + "".join(c.text for c in chunks) == text


async def test_follow_with_another_prefix_is_data_loss_and_beyond_the_end_out_of_range(stub):
    request = pb.GenerateRequest(
        text="hello", request_id="short", stopping=pb.Stopping(max_tokens=3, ignore_eos=True)
    )
    async for _ in stub.Generate(request):
        pass

    for follow, code in (
        (pb.FollowRequest(request_id="short", start_index=2, prefix_hash=b"12345678"), "DATA_LOSS"),
        (pb.FollowRequest(request_id="short", start_index=9), "OUT_OF_RANGE"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            async for _ in stub.Follow(follow):
                pass
        assert raised.value.code().name == code


async def test_follow_goes_to_the_visible_end_and_not_to_a_withheld_stop_token(stub):
    plain = pb.GenerateRequest(
        text="hello", sampling=pb.Sampling(temperature=0), stopping=pb.Stopping(max_tokens=8)
    )
    ids = [i async for chunk in stub.Generate(plain) for i in chunk.token_ids]
    stopped = pb.GenerateRequest(
        text="hello",
        request_id="stop-token",
        sampling=pb.Sampling(temperature=0),
        stopping=pb.Stopping(max_tokens=8, stop_token_ids=[ids[-1]]),
    )
    chunks = [chunk async for chunk in stub.Generate(stopped)]
    assert chunks[-1].finish.cause == pb.FINISH_CAUSE_STOP_TOKEN
    num_visible = chunks[-1].finish.usage.num_output_tokens

    at_end = pb.FollowRequest(request_id="stop-token", start_index=num_visible)
    last = [chunk async for chunk in stub.Follow(at_end)][-1]
    beyond = pb.FollowRequest(request_id="stop-token", start_index=num_visible + 1)
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        async for _ in stub.Follow(beyond):
            pass

    assert last.finish == chunks[-1].finish
    assert raised.value.code() is grpc.StatusCode.OUT_OF_RANGE


async def test_a_stop_string_is_withheld_and_streamed_text_is_the_stored_text(stub):
    probe = pb.GenerateRequest(
        text="hello", sampling=pb.Sampling(temperature=0), stopping=pb.Stopping(max_tokens=60)
    )
    text = "".join([c.text async for c in stub.Generate(probe)])
    stop = text[20:24]
    request = pb.GenerateRequest(
        text="hello",
        request_id="stopped",
        sampling=pb.Sampling(temperature=0),
        stopping=pb.Stopping(max_tokens=60, stop=[stop]),
    )

    chunks = [c async for c in stub.Generate(request)]

    streamed = "".join(c.text for c in chunks)
    assert streamed == text[: text.index(stop)]
    assert chunks[-1].finish.cause == pb.FINISH_CAUSE_STOP_STRING
    assert chunks[-1].finish.stop_string == stop
    stored = await stub.GetRequest(pb.GetRequestRequest(request_id="stopped"))
    assert stored.text == streamed
    assert list(stored.token_ids) == [i for c in chunks for i in c.token_ids]
    assert stored.usage.num_output_tokens == len(stored.token_ids)


async def test_the_first_chunk_comes_at_once_with_id_and_seed(stub):
    call = stub.Generate(pb.GenerateRequest(text="hello", stopping=pb.Stopping(max_tokens=2)))
    first = await asyncio.wait_for(call.read(), 20)
    call.cancel()

    assert first.request_id
    assert first.num_prompt_tokens > 0
    assert not first.token_ids

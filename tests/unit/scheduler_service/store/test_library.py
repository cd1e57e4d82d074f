"""The Functions library: named by its content, loaded when it is missing."""

import redis.asyncio
from fakes_store import make_new_request, open_redis

from scheduler_service.store.library import FunctionLibrary


def test_the_name_of_the_library_and_of_each_function_carries_the_hash() -> None:
    library = FunctionLibrary.read()

    assert library.source.startswith(f"#!lua name={library.name}\n")
    assert "@HASH@" not in library.source
    assert library.function("submit") == f"{library.name}_submit"


async def test_a_flushed_library_is_loaded_again_and_the_call_made(valkey_url: str) -> None:
    async with open_redis(valkey_url) as opened:
        assert opened.server is not None
        await opened.server.function_flush()

        outcome = await opened.store.submit(make_new_request())

        assert outcome.created
        (loaded,) = await opened.server.function_list()
        assert FunctionLibrary.read().name.encode() in loaded


async def test_libraries_of_two_versions_live_side_by_side(valkey_url: str) -> None:
    ours = FunctionLibrary.read()
    other = ours.source.replace(ours.name, "tokentide_00000000")
    async with redis.asyncio.Redis.from_url(valkey_url) as server, open_redis(valkey_url) as opened:
        await server.function_load(other)

        assert (await opened.store.submit(make_new_request())).created
        prefix = "tokentide:{other}:"
        assert (
            await server.fcall("tokentide_00000000_beat", 1, prefix, 1, "m", "a", 1, 1, 1)
            is not None
        )
        await server.function_delete("tokentide_00000000")

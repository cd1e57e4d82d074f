"""What `generate --json` writes."""

from google.protobuf.json_format import ParseDict

from shared.pb import generation_pb2 as pb
from shared.types import FinishReason
from tokentide.client import Chunk, Finish, Usage
from tokentide.commands.generate import chunk_as_dict


def test_a_chunk_has_the_names_and_the_bytes_of_the_protocol():
    finish = Finish(reason=FinishReason.LENGTH, usage=Usage(num_output_tokens=3))
    chunk = Chunk(
        request_id="r",
        start_index=2,
        token_ids=(7,),
        text=" sea",
        seed=5,
        num_prompt_tokens=4,
        finish=finish,
        prefix_hash=b"\xff\x00hash",
    )

    shown = chunk_as_dict(chunk)
    assert shown["finish"].pop("cause") == "length"

    message = ParseDict(shown, pb.GenerateChunk())  # refuses a name that is not the protocol's
    assert message.prefix_hash == chunk.prefix_hash
    assert message.finish.usage.num_output_tokens == 3


def test_without_a_hash_none_is_shown():
    assert "prefix_hash" not in chunk_as_dict(Chunk(request_id="r", start_index=0))

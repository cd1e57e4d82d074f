from shared.types import FinishReason
from tokentide.client import Chunk, Finish
from tokentide.demo_prompts import DemoPrompt
from tokentide.demo_round import Talk


def make_talk(*arrivals_s: float) -> Talk:
    """A token at each of these times; submitted at 0."""
    talk = Talk(DemoPrompt("haiku", "Write a haiku.", 48))
    talk.take(Chunk(request_id="haiku", start_index=0, num_prompt_tokens=10), 0.0)
    for index, arrival_s in enumerate(arrivals_s):
        chunk = Chunk(request_id="haiku", start_index=index, token_ids=(index,), text=" sea")
        talk.take(chunk, arrival_s)
    return talk


def test_times_to_tokens_are_counted_from_the_submit():
    talk = make_talk(1.5, 2.0, 2.25)

    assert talk.ttft_s == 1.5
    assert talk.gaps_s == [0.5, 0.25]
    assert make_talk().ttft_s is None


def test_an_answer_is_its_token_ids_and_its_text_and_how_it_ended():
    talk = make_talk(1.5, 2.0)
    end = Finish(reason=FinishReason.STOP_TOKEN)

    talk.take(Chunk(request_id="haiku", start_index=2, token_ids=(7, 8), finish=end), 3.0)

    assert (talk.token_ids, talk.num_tokens) == ([0, 1, 7, 8], 4)
    assert (talk.text, talk.end) == (" sea sea", "stop token")
    assert talk.num_prompt_tokens == 10

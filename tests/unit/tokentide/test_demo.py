from tokentide.client import Chunk
from tokentide.commands.readings import Totals
from tokentide.demo import Summary, threads_each
from tokentide.demo_prompts import DEMO_PROMPTS, DemoPrompt
from tokentide.demo_round import Talk


def make_talk(*arrivals_s: float, num_prompt_tokens: int = 10) -> Talk:
    """A token at each of these times; submitted at 0."""
    talk = Talk(DemoPrompt("haiku", "Write a haiku.", 48))
    talk.take(Chunk(request_id="haiku", start_index=0, num_prompt_tokens=num_prompt_tokens), 0.0)
    for index, arrival_s in enumerate(arrivals_s):
        chunk = Chunk(request_id="haiku", start_index=index, token_ids=(index,), text=" sea")
        talk.take(chunk, arrival_s)
    return talk


def test_there_are_eight_prompts_of_different_lengths_with_names_of_their_own():
    assert len(DEMO_PROMPTS) == 8
    assert len({prompt.name for prompt in DEMO_PROMPTS}) == 8
    lengths = sorted(len(prompt.text) for prompt in DEMO_PROMPTS)
    assert lengths[-1] > 50 * lengths[0]


def test_the_summary_keeps_generated_and_prompt_tokens_apart():
    totals = Totals(
        num_steps=4,
        num_prompt_tokens=30,
        num_recomputed_tokens=2,
        busy_ns=99,
        bubble_ns=1,
        batch_size_ns=198.0,
    )

    rows = dict(Summary.of([make_talk(1.0, 1.5), make_talk(2.0)], totals, 6.0).rows())

    assert rows["generated"] == "0.5 tokens/s (3)"
    assert rows["prompt"] == "5.0 tokens/s (30 computed, 0 cached)"
    assert rows["time to first token"] == "p50 1000 ms, p99 2000 ms"
    assert rows["inter-token latency"] == "p50 500 ms, p99 500 ms"
    assert rows["recomputed"] == "2 tokens"
    assert rows["worker idle with work"] == "1.00% of the time"
    assert rows["mean batch size"] == "2.0 sequences"


def test_every_worker_has_a_thread_however_few_the_cores(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert threads_each() == 1
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(16)))
    assert threads_each() == 8

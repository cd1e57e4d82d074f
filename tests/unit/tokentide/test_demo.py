import io

from rich.console import Console

from shared.types import FinishReason
from tokentide.client import Chunk, Finish
from tokentide.commands.readings import Totals
from tokentide.demo import LineShow, LiveShow, Summary, Talk, one_line
from tokentide.demo_prompts import DEMO_PROMPTS, DemoPrompt


def make_talk(*arrivals_s: float, num_prompt_tokens: int = 10) -> Talk:
    """A token at each of these times; submitted at 0."""
    talk = Talk(DemoPrompt("haiku", "Write a haiku.", 48))
    talk.take(Chunk(request_id="haiku", start_index=0, num_prompt_tokens=num_prompt_tokens), 0.0)
    for index, arrival_s in enumerate(arrivals_s):
        chunk = Chunk(request_id="haiku", start_index=index, token_ids=(index,), text=" sea")
        talk.take(chunk, arrival_s)
    return talk


def finish(talk: Talk) -> None:
    end = Finish(reason=FinishReason.LENGTH)
    talk.take(Chunk(request_id="haiku", start_index=talk.num_tokens, finish=end), 9.0)


def test_there_are_eight_prompts_of_different_lengths_with_names_of_their_own():
    assert len(DEMO_PROMPTS) == 8
    assert len({prompt.name for prompt in DEMO_PROMPTS}) == 8
    lengths = sorted(len(prompt.text) for prompt in DEMO_PROMPTS)
    assert lengths[-1] > 50 * lengths[0]


def test_times_to_tokens_are_counted_from_the_submit():
    talk = make_talk(1.5, 2.0, 2.25)

    assert talk.ttft_s == 1.5
    assert talk.gaps_s == [0.5, 0.25]
    assert make_talk().ttft_s is None


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
    assert rows["prompt"] == "5.0 tokens/s (30 computed, 0 from the prefix cache)"
    assert rows["time to first token"] == "p50 1000 ms, p99 2000 ms"
    assert rows["inter-token latency"] == "p50 500 ms, p99 500 ms"
    assert rows["recomputed"] == "2 tokens"
    assert rows["worker idle with work"] == "1.00% of the time"
    assert rows["mean batch size"] == "2.0 sequences"


def test_plain_lines_tell_the_first_token_then_a_dozen_at_a_time_then_the_end():
    console = Console(file=io.StringIO(), width=80)
    show = LineShow(console)
    talk = make_talk()
    for index in range(14):
        talk.take(
            Chunk(request_id="haiku", start_index=index, token_ids=(1,), text=f" {index}"), 1.0
        )
        show.on_chunk(talk)
    finish(talk)
    show.on_chunk(talk)

    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines == [
        "       haiku   1 0 first token after 1.00 s",
        "       haiku  12 1 2 3 4 5 6 7 8 9 10 11",
        "       haiku  14 12 13 [length]",
    ]


def test_the_live_table_shows_each_answer_s_end_and_tokens():
    talk = make_talk(*[float(n) for n in range(1, 40)])
    console = Console(file=io.StringIO(), width=100, color_system=None)

    console.print(LiveShow(console, [talk]).render())

    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "haiku" in shown
    assert "1.00 s" in shown
    assert "39" in shown


def test_at_80_columns_the_newest_words_of_a_long_answer_are_in_sight():
    talk = make_talk(*[float(n) for n in range(1, 40)])
    talk.take(Chunk(request_id="haiku", start_index=39, token_ids=(1,), text=" newest"), 40.0)
    console = Console(file=io.StringIO(), width=80, color_system=None)

    console.print(LiveShow(console, [talk]).render())

    assert isinstance(console.file, io.StringIO)
    assert "sea newest" in console.file.getvalue()


def test_text_of_the_model_cannot_move_the_cursor():
    assert one_line("a\x1b[2Jb\n c\td") == "a [2Jb c d"

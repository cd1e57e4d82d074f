import io

from rich.console import Console

from shared.types import BlockCounts, FinishReason
from tokentide.client import Chunk, Finish
from tokentide.commands.readings import Scheduled, Step
from tokentide.demo_prompts import DemoPrompt
from tokentide.demo_round import Talk
from tokentide.demo_show import LineShow, LiveShow, one_line


def make_talk(*arrivals_s: float, num_prompt_tokens: int = 10) -> Talk:
    """A token at each of these times; submitted at 0."""
    talk = Talk(DemoPrompt("haiku", "Write a haiku.", 48))
    talk.take(Chunk(request_id="haiku", start_index=0, num_prompt_tokens=num_prompt_tokens), 0.0)
    for index, arrival_s in enumerate(arrivals_s):
        chunk = Chunk(request_id="haiku", start_index=index, token_ids=(index,), text=" sea")
        talk.take(chunk, arrival_s)
    return talk


def make_step(worker: str) -> Step:
    return Step(
        worker=worker,
        step_id=7,
        scheduled=(Scheduled("haiku", 1, True),),
        blocks=BlockCounts(total=9, free=9, cached=0, held=0),
        num_waiting=0,
        num_running=1,
    )


def finish(talk: Talk) -> None:
    end = Finish(reason=FinishReason.LENGTH)
    talk.take(Chunk(request_id="haiku", start_index=talk.num_tokens, finish=end), 9.0)


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
        "        haiku   1 0 first token after 1.00 s",
        "        haiku  12 1 2 3 4 5 6 7 8 9 10 11",
        "        haiku  14 12 13 [length]",
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


def test_a_step_is_told_with_its_worker():
    console = Console(file=io.StringIO(), width=100, color_system=None)

    LineShow(console).on_step("scheduler-0", make_step("worker-1"))

    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue().startswith("worker-1 step    7 ")


def test_the_live_table_names_the_workers_when_there_are_several():
    console = Console(file=io.StringIO(), width=100, color_system=None)
    show = LiveShow(console, [make_talk()])
    show.on_step("scheduler-0", make_step("worker-0"))
    show.on_step("scheduler-1", make_step("worker-1"))

    console.print(show.render())

    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "worker-0" in shown
    assert "worker-1" in shown

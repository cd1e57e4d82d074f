import io

from rich.console import Console

from tokentide.plain_lines import print_line, wrapped

KILL = "kill -9 scheduler-0: it drove worker-1 (haiku-2, sky-2); 65 of 367 tokens were out"


def printed(text: str, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    print_line(console, text)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def test_what_is_too_wide_goes_on_between_words_and_set_in(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")

    assert printed(KILL, 40) == [
        "kill -9 scheduler-0: it drove worker-1",
        "    (haiku-2, sky-2); 65 of 367 tokens",
        "    were out",
    ]
    assert printed("a [b]\n", 40) == ["a [b]", ""]


def test_in_a_file_without_a_width_a_line_stays_one(monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)

    assert printed(KILL, 40) == [KILL]


def test_a_word_that_is_wider_than_the_screen_stays_whole():
    assert wrapped("  data in /a/long/folder/that-goes-on", 20) == (
        "  data in\n      /a/long/folder/that-goes-on"
    )

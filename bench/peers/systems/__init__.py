"""Ours and the peers, in the order of the table."""

from bench.peers.system import System
from bench.peers.systems.llama import Llama
from bench.peers.systems.openvino import OpenVino
from bench.peers.systems.ours import Ours
from bench.peers.systems.transformers import TransformersContinuous, TransformersStatic
from bench.peers.systems.vllm import Vllm


def all_systems() -> tuple[System, ...]:
    return (Ours(), Vllm(), Llama(), OpenVino(), TransformersContinuous(), TransformersStatic())

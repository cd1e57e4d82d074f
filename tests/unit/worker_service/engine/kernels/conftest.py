"""The kernels as compiled for this machine, for an older one, and for any."""

import ctypes
import platform
from pathlib import Path

import pytest

from worker_service.engine.kernels.build import BuildFailed, build
from worker_service.engine.kernels.kernels import Kernels

FLAGS = {"this": ("-march=native", "-fopenmp"), "avx2": ("-march=haswell", "-fopenmp"), "any": ()}


@pytest.fixture(scope="session", params=FLAGS)
def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> ctypes.CDLL:
    if request.param == "avx2" and not _has_avx2():
        pytest.skip("no AVX2 here")
    try:
        path = build(tmp_path_factory.mktemp("kernels"), [FLAGS[request.param]])
    except BuildFailed as error:
        pytest.skip(str(error))
    return ctypes.CDLL(str(path))


@pytest.fixture(scope="session")
def kernels(library: ctypes.CDLL) -> Kernels:
    return Kernels(library, num_threads=2)


@pytest.fixture(scope="session")
def one_thread(library: ctypes.CDLL) -> Kernels:
    return Kernels(library, num_threads=1)


def _has_avx2() -> bool:
    cpuinfo = Path("/proc/cpuinfo")
    return platform.machine() == "x86_64" and cpuinfo.exists() and " avx2 " in cpuinfo.read_text()

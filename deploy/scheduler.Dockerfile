# The scheduler and the command line: no torch. Build from the repository's root:
#   docker build --file deploy/scheduler.Dockerfile --tag tokentide/scheduler .
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

FROM ${PYTHON_IMAGE} AS build
# Another index beside pip's own; empty = none.
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /build
RUN python3 -m venv /venv
COPY pyproject.toml requirements.txt deploy/print_requirements.py ./
RUN python3 print_requirements.py scheduler > wanted.txt \
    && /venv/bin/python -m pip install --no-cache-dir --requirement wanted.txt --constraint requirements.txt setuptools
COPY . .
RUN /venv/bin/python -m pip install --no-cache-dir --no-build-isolation --no-deps . \
    && /venv/bin/python -m pip uninstall --yes setuptools pip

FROM ${PYTHON_IMAGE}
RUN groupadd --gid 10001 tokentide \
    && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin tokentide
COPY --from=build /venv /venv
COPY deploy/start-scheduler /usr/local/bin/
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1
USER 10001:10001
EXPOSE 50051 50151
ENTRYPOINT ["start-scheduler"]

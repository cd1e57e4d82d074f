# The scheduler and the command line: no torch. Build from the repository's root:
#   docker build --file deploy/scheduler.Dockerfile --tag tokentide/scheduler .
ARG PYTHON_IMAGE=python:3.11-slim-bookworm

# Apart, so that only another requirement installs anew, not every change of pyproject.toml.
FROM ${PYTHON_IMAGE} AS wanted
WORKDIR /wanted
COPY pyproject.toml deploy/print_requirements.py ./
RUN python3 print_requirements.py scheduler > wanted.txt

FROM ${PYTHON_IMAGE} AS dependencies
# Another index beside pip's own; empty = none.
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /build
# Without pip and setuptools, which nothing needs that runs: the base's pip installs.
RUN python3 -m venv --without-pip /venv
COPY requirements.txt ./
COPY --from=wanted /wanted/wanted.txt ./
RUN python3 -m pip --python /venv/bin/python install --no-cache-dir \
    --requirement wanted.txt --constraint requirements.txt

FROM ${PYTHON_IMAGE} AS package
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /build
RUN python3 -m venv /build-venv
COPY requirements.txt ./
RUN /build-venv/bin/python -m pip install --no-cache-dir --constraint requirements.txt setuptools
COPY . .
RUN /build-venv/bin/python -m pip wheel --no-build-isolation --no-deps --wheel-dir /wheel .

FROM ${PYTHON_IMAGE}
RUN groupadd --gid 10001 tokentide \
    && useradd --uid 10001 --gid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin tokentide
COPY --from=dependencies /venv /venv
# A layer of its own, and small: a new version brings only this one.
COPY --from=package /wheel /wheel
RUN python3 -m pip --python /venv/bin/python install --no-cache-dir --no-index --no-deps /wheel/*.whl
COPY deploy/start-scheduler /usr/local/bin/
# Whatever the umask that the tree was cloned under.
RUN chmod 755 /usr/local/bin/start-*
# transformers would warn at each start that there is no torch.
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 TRANSFORMERS_NO_ADVISORY_WARNINGS=1
USER 10001:10001
EXPOSE 50051 50151
ENTRYPOINT ["start-scheduler"]

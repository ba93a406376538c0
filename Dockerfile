# The reader of traces, for machines without Python. From a clone:
#
#   docker build -t traceview .
#   docker run --rm -v "$PWD:/traces" -u "$(id -u):$(id -g)" traceview report train.sqlite
FROM python:3.13-bookworm AS build
WORKDIR /source
COPY LICENSE README.md pyproject.toml setup.py ./
COPY traceview traceview
RUN pip wheel --no-cache-dir --wheel-dir /wheels .

FROM python:3.13-slim-bookworm
COPY --from=build /wheels /wheels
# Only what stage 1 built can be installed, in that version.
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --no-index --find-links /wheels traceview && rm -r /wheels
RUN useradd --create-home --uid 1000 reader
USER 1000
WORKDIR /traces
ENTRYPOINT ["traceview"]
CMD ["--help"]

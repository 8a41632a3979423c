# The worker's image with clients of indexes, for the pod that pushes versions (spec.push.image).
#
#   docker build --file docker/push.Dockerfile --build-arg WORKER=registry.example/embertide/worker:0.1.0-cpu \
#     --build-arg INDEXES=pgvector $(grep -v '^#' docker/base-images.env | sed 's/^/--build-arg=/') .
#
# WORKER   an image of docker/worker.Dockerfile, of the same release
# BASE     as there; docker/base-images.env pins it
# INDEXES  pgvector, qdrant, milvus, lancedb: one, or several with spaces between
ARG BASE
ARG WORKER

# Build tools; not part of the image.
FROM ${BASE} AS tools
ARG UV_VERSION=0.13.8
ENV UV_PYTHON=python3 UV_PYTHON_DOWNLOADS=never UV_CACHE_DIR=/var/cache/uv
RUN python3 -m venv /opt/tools && /opt/tools/bin/pip install --no-cache-dir "uv==${UV_VERSION}"
WORKDIR /source

FROM tools AS requirements
ARG INDEXES=pgvector
COPY pyproject.toml uv.lock ./
RUN set -eu; mkdir /requirements; \
    for index in ${INDEXES}; do set -- "$@" --extra "${index}"; done; \
    /opt/tools/bin/uv export --quiet --locked --no-emit-project "$@" -o /requirements/push.txt

FROM ${WORKER} AS image
USER 0
COPY --from=requirements /requirements/ /opt/embertide/requirements/
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    --mount=type=cache,id=embertide-uv,target=/var/cache/uv \
    UV_CACHE_DIR=/var/cache/uv UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 \
    VIRTUAL_ENV=/opt/embertide/venv \
    /opt/tools/bin/uv pip install --require-hashes -r /opt/embertide/requirements/push.txt
USER 65532:65532

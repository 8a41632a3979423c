# The image of the operator, without PyTorch.
#
#   docker build --file docker/operator.Dockerfile \
#     $(docker/build-arguments operator | sed 's/^/--build-arg=/') .
#
# BASE  any image with Python 3.11 or later and its venv module; docker/base-images.env pins it
ARG BASE

# Build tools; not part of the image.
FROM ${BASE} AS tools
ARG UV_VERSION=0.13.8
ENV UV_PYTHON=python3 UV_PYTHON_DOWNLOADS=never UV_CACHE_DIR=/var/cache/uv
RUN python3 -m venv /opt/tools && /opt/tools/bin/pip install --no-cache-dir "uv==${UV_VERSION}"
WORKDIR /source

FROM tools AS requirements
COPY pyproject.toml uv.lock ./
RUN mkdir /requirements && /opt/tools/bin/uv export --quiet --locked --no-emit-project \
        --extra operator -o /requirements/locked.txt

FROM tools AS package
COPY . .
RUN --mount=type=cache,id=embertide-uv,target=/var/cache/uv \
    /opt/tools/bin/uv build --wheel --config-setting wheel.cmake=false --out-dir /dist

FROM ${BASE} AS image
LABEL org.opencontainers.image.title="embertide-operator" \
      org.opencontainers.image.description="Runs EmbeddingJobs on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 65532 --user-group --no-create-home --home-dir /tmp \
        --shell /usr/sbin/nologin embertide
WORKDIR /opt/embertide

# The largest layer; rebuilt only when the locked requirements change.
COPY --from=requirements /requirements/ requirements/
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    --mount=type=cache,id=embertide-uv,target=/var/cache/uv \
    set -eu; \
    export UV_CACHE_DIR=/var/cache/uv UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 \
        VIRTUAL_ENV=/opt/embertide/venv; \
    python3 -m venv --without-pip venv; \
    /opt/tools/bin/uv pip install --require-hashes -r requirements/locked.txt

# What was built from what: docker/build-arguments prints these, and labels alone depend on them. They
# stand before a RUN: buildah takes the labels of an earlier build where no RUN has had other arguments.
ARG BASE
ARG SOURCE=
ARG REVISION=
ARG VERSION=
ARG CREATED=
COPY --from=package /dist/ dist/
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    VIRTUAL_ENV=/opt/embertide/venv /opt/tools/bin/uv pip install --no-cache --offline --no-deps \
        --compile-bytecode dist/*.whl

ENV PATH="/opt/embertide/venv/bin:${PATH}" \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONSAFEPATH=1
USER 65532:65532
STOPSIGNAL SIGTERM
ENTRYPOINT ["python", "-m", "embertide_operator"]
LABEL org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE}"

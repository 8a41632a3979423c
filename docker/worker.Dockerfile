# The image of the workers and the planner of an EmbeddingJob.
#
#   docker build --file docker/worker.Dockerfile \
#     $(docker/build-arguments worker-cpu | sed 's/^/--build-arg=/') .
#
# BASE   any image with Python 3.11 or later and its venv module; docker/base-images.env pins it
# TORCH  cuda: the build in uv.lock, which also runs without a GPU.
#        cpu: the build in docker/torch-cpu.txt, a tenth of the size; without hashes there, that of
#        TORCH_INDEX, such as https://download.pytorch.org/whl/cpu; without one, the build in uv.lock
ARG BASE

# Build tools; not part of the image.
FROM ${BASE} AS tools
ARG UV_VERSION=0.13.8
ENV UV_PYTHON=python3 UV_PYTHON_DOWNLOADS=never UV_CACHE_DIR=/var/cache/uv
RUN python3 -m venv /opt/tools && /opt/tools/bin/pip install --no-cache-dir "uv==${UV_VERSION}"
WORKDIR /source

FROM tools AS requirements
ARG TORCH=cuda
ARG TORCH_INDEX=
COPY pyproject.toml uv.lock ./
COPY docker/export-requirements docker/torch-cpu.txt docker/
RUN UV=/opt/tools/bin/uv docker/export-requirements "${TORCH}" /requirements "${TORCH_INDEX}"

FROM tools AS package
# Compiles the native kernels; without it the image would fall back to those of torch.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install --yes --no-install-recommends g++ libpython3-dev \
    && rm -rf /var/lib/apt/lists/*
COPY . .
# What has been compiled is kept for the next build, so that a change of Python alone takes seconds.
RUN --mount=type=cache,id=embertide-uv,target=/var/cache/uv \
    --mount=type=cache,id=embertide-kernels,target=/var/cache/kernels \
    EMBERTIDE_KERNEL_CACHE=/var/cache/kernels /opt/tools/bin/uv build --wheel --out-dir /dist

FROM ${BASE} AS image
LABEL org.opencontainers.image.title="embertide-worker" \
      org.opencontainers.image.description="Computes embeddings of all nodes of a graph" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN useradd --uid 65532 --user-group --no-create-home --home-dir /scratch \
        --shell /usr/sbin/nologin embertide
WORKDIR /opt/embertide

# The largest layers: CUDA's libraries, and the others; rebuilt only when the locked requirements change,
# and the same for both values of TORCH where these have the same torch.
COPY --from=requirements /requirements/ requirements/
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    --mount=type=cache,id=embertide-uv,target=/var/cache/uv \
    set -eu; \
    export UV_CACHE_DIR=/var/cache/uv UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 \
        VIRTUAL_ENV=/opt/embertide/venv; \
    python3 -m venv --without-pip venv; \
    if [ -f requirements/cuda.txt ]; then \
        /opt/tools/bin/uv pip install --no-deps --require-hashes -r requirements/cuda.txt; \
    fi
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    --mount=type=cache,id=embertide-uv,target=/var/cache/uv \
    set -eu; \
    export UV_CACHE_DIR=/var/cache/uv UV_LINK_MODE=copy UV_COMPILE_BYTECODE=1 \
        VIRTUAL_ENV=/opt/embertide/venv; \
    /opt/tools/bin/uv pip install --require-hashes -r requirements/locked.txt; \
    if [ -f requirements/torch.txt ]; then \
        if grep -q sha256: requirements/torch.txt; then set -- --require-hashes; fi; \
        /opt/tools/bin/uv pip install "$@" --no-deps -r requirements/torch.txt; \
    fi

# Triton compiles a launcher of its kernels where they run first, beside the GPU's driver.
ARG TORCH=cuda
# hadolint ignore=DL3008
RUN if [ "${TORCH}" = cuda ]; then \
        apt-get update && apt-get install --yes --no-install-recommends gcc libc6-dev libpython3-dev \
        && rm -rf /var/lib/apt/lists/*; \
    fi

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
ENTRYPOINT ["python", "-m", "embertide.pod"]
LABEL org.opencontainers.image.source="${SOURCE}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.base.name="${BASE}"

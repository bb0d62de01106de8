# syntax=docker/dockerfile:1
# rgrl for a machine with NVIDIA GPUs. Build from the repository's root:
#   docker build -f deploy/gpu.Dockerfile -t rgrl:gpu .
ARG PYTHON_VERSION=3.11

FROM python:${PYTHON_VERSION}-slim-bookworm AS build
ARG TORCH_VERSION=2.13.0
# The index decides the CUDA version; the machine needs a driver that supports it.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cu130
RUN python -m venv /opt/rgrl
ENV PATH=/opt/rgrl/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN pip install "torch==${TORCH_VERSION}" --index-url "${TORCH_INDEX}"
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY preprocessing preprocessing
COPY trainer trainer
COPY service service
RUN pip install ".[postgres]"

FROM python:${PYTHON_VERSION}-slim-bookworm
RUN apt-get update \
    && apt-get install -y --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home rgrl \
    && install -d -o rgrl -g rgrl /var/lib/rgrl /data
COPY --from=build /opt/rgrl /opt/rgrl
ENV PATH=/opt/rgrl/bin:$PATH \
    RGRL_HOME=/var/lib/rgrl \
    RGRL_HOST=0.0.0.0 \
    RGRL_PORT=8000 \
    RGRL_DATA_ROOTS=/data \
    NUMBA_CACHE_DIR=/var/lib/rgrl/numba-cache
USER rgrl
VOLUME ["/var/lib/rgrl"]
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/readyz', timeout=2)"]
ENTRYPOINT ["rgrl"]
CMD ["serve"]

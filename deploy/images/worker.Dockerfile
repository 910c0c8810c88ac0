# A Ray node of the data plane. CPU: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu; without it, the CUDA build.
# EXTRAS: what else of pyproject.toml, for example workers,s3,hf.
FROM python:3.12.11-slim-bookworm

ARG TORCH_INDEX=""
ARG EXTRAS="workers,s3"
WORKDIR /opt/elastane
COPY pyproject.toml constraints.txt README.md LICENSE ./
# A layer of its own: gigabytes that change with torch alone.
RUN python -m pip install --no-cache-dir -c constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==2.13.0"
COPY service service
COPY workers workers
COPY api api
COPY migrations migrations
# The folders that volumes cover: a new volume takes owner and mode of what the image has in its place.
RUN python -m pip install --no-cache-dir -c constraints.txt ".[$EXTRAS]" "torch==2.13.0" \
    && groupadd --gid 10001 elastane \
    && useradd --no-log-init --create-home --uid 10001 --gid 10001 elastane \
    && install -d -o 10001 -g 10001 /checkpoints

USER 10001:10001
# Tensors do not travel through Ray's object store; usage statistics stay at home; workers run at everybody's priority.
ENV RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0 PYTHONDONTWRITEBYTECODE=1
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:52365/api/local_raylet_healthz', timeout=2)"]
ENTRYPOINT ["ray"]

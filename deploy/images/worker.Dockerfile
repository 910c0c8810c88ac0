# A Ray node of the data plane. CPU: --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cpu; without it, the CUDA build.
FROM python:3.12-slim

ARG TORCH_INDEX=""
RUN useradd --create-home --uid 10001 elastane
WORKDIR /opt/elastane
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN python -m pip install --no-cache-dir -c constraints.txt ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "torch==2.13.0"
COPY service service
COPY workers workers
COPY api api
COPY migrations migrations
RUN python -m pip install --no-cache-dir -c constraints.txt ".[workers]"

# A new volume takes owner and mode of what the image has in its place.
RUN install -d -o elastane -g elastane /checkpoints
USER elastane
# Tensors do not travel through Ray's object store; usage statistics stay at home.
ENV RAY_USAGE_STATS_ENABLED=0 RAY_worker_niceness=0
ENTRYPOINT ["ray"]

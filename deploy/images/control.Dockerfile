# The control plane. Build from the project's root: docker build -f deploy/images/control.Dockerfile .
FROM python:3.12.11-slim-bookworm

WORKDIR /opt/elastane
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY service service
COPY workers workers
COPY api api
COPY migrations migrations
# The folders that volumes cover: a new volume takes owner and mode of what the image has in its place.
RUN python -m pip install --no-cache-dir -c constraints.txt ".[postgres]" \
    && groupadd --gid 10001 elastane \
    && useradd --no-log-init --create-home --uid 10001 --gid 10001 elastane \
    && install -d -o 10001 -g 10001 /checkpoints /home/elastane/data

USER 10001:10001
ENV ELASTANE_HOME=/home/elastane/data PYTHONDONTWRITEBYTECODE=1
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
ENTRYPOINT ["elastane"]
CMD ["serve", "--host", "0.0.0.0"]
